use super::*;
use odafs_fabric::verbs;
use odafs_server::config::{Grantee, MinorVersions};

#[test]
fn the_command_line_goes_before_the_file() {
    let file: ServeOptions = toml::from_str(
        "dir = '/'\ncache = '64MiB'\npage = 8192\nshm = true\nread-only = true\n\
         allow = ['10.0.0.0/8']\nsquash = 'root'\ndirect = 'one-sided'\nspin = '5us'\nslow-call = '2ms'\nnfs = '127.0.0.1:0'\n\
         idmap = 'names'\nidmap-domain = 'example.org'",
    )
    .unwrap();
    let line = ServeOptions {
        cache: Some(1 << 20),
        ..ServeOptions::default()
    };
    let config = line.or(file).server_config().unwrap();
    assert_eq!(config.cache_bytes, 1 << 20);
    assert_eq!(config.page.bytes(), 8192);
    assert!(config.read_only && config.shm.is_some() && config.nfs.is_some());
    assert_eq!(
        (config.squash, config.direct),
        (Squash::Root, Direct::OneSided)
    );
    assert_eq!(config.spin, Duration::from_micros(5));
    assert_eq!(config.slow_call, Duration::from_millis(2));
    assert!(config.owner_names);
    assert_eq!(config.owner_domain, "example.org");
}

#[test]
fn a_named_listener_stands_alone() {
    let options = ServeOptions {
        dir: Some("/".into()),
        nfs: Some("127.0.0.1:0".parse().unwrap()),
        ..ServeOptions::default()
    };
    assert!(options.server_config().unwrap().shm.is_none());
}

#[test]
fn rdma_is_among_the_defaults_and_its_options_reach_the_server() {
    let options: ServeOptions = toml::from_str(
        "dir = '/'\ncredits = 'adaptive'\ndesign = 'read-read'\nregistration = 'all-physical'\n\
         registration-cost = '2us'",
    )
    .unwrap();
    let line = ServeOptions {
        credits: Some("7".parse().unwrap()),
        shm: Some(Shm::At("/tmp/x".into())),
        ..ServeOptions::default()
    };
    let plain = ServeOptions {
        dir: Some("/".into()),
        ..ServeOptions::default()
    };
    let plain = plain.server_config().unwrap();
    assert_eq!(plain.rdma, Some(listeners::DEFAULT_RDMA));
    assert!(!plain.rpc_rdma.read_read);
    assert_eq!(plain.rpc_rdma.credits, Credits::Fixed(128));

    let config = line.or(options).server_config().unwrap();
    assert_eq!(config.rdma, None, "one that is named stands alone");
    assert!(config.rpc_rdma.read_read);
    assert_eq!(config.rpc_rdma.credits, Credits::Fixed(7));
    let registration = config.rpc_rdma.registration;
    assert_eq!(registration.strategy, Strategy::AllPhysical);
    assert_eq!(registration.costs.operation.0, 2000);
}

#[test]
fn a_device_stands_alone_and_on_demand_paging_is_for_devices() {
    let options: ServeOptions =
        toml::from_str("dir = '/'\nverbs = '10.0.0.1:20049'\nodp = true").unwrap();
    let config = options.server_config();
    if verbs::BUILT_IN {
        let config = config.unwrap();
        assert_eq!(config.verbs, Some("10.0.0.1:20049".parse().unwrap()));
        assert!(config.on_demand_paging && config.rdma.is_none() && config.shm.is_none());
    } else {
        assert!(config.unwrap_err().is::<Usage>());
    }
    for (name, order) in [
        ("fence", ReadOrder::Fence),
        ("rising", ReadOrder::Rising),
        ("ordered", ReadOrder::Ordered),
    ] {
        let text = format!("dir = '/'\nverbs = '10.0.0.1:20049'\nread-order = '{name}'");
        let options: ServeOptions = toml::from_str(&text).unwrap();
        assert_eq!(options.read_order(), order);
    }
    let options: ServeOptions = toml::from_str("dir = '/'\nodp = true").unwrap();
    assert!(options.server_config().unwrap_err().is::<Usage>());
}

#[test]
fn wrong_names_and_values_in_a_file_are_refused() {
    for text in [
        "cash = '1GiB'",
        "cache = 'much'",
        "squash = 'some'",
        "page = -1",
        "credits = 0",
        "credits = 'many'",
        "spin = '10'",
        "slow-call = '10'",
        "slow-call = 'long'",
        "pinning-cost = '10'",
        "registration = 'none'",
    ] {
        assert!(toml::from_str::<ServeOptions>(text).is_err(), "{text}");
    }
}

/// A mistake in a file names the kind of value that belongs there, never a type of this program.
#[test]
fn a_wrong_value_in_a_file_says_what_is_wanted() {
    for (text, wanted) in [
        (
            "cache = true",
            "expected a size, as in \"512MiB\", found a value of type boolean",
        ),
        ("cache = -1", "a size is a number with a unit"),
        ("spin = 10", "a time is a number with a unit"),
        ("nfs = 'localhost:2049'", "give an IP address and a port"),
        ("nfs = true", "expected an address and a port"),
        ("shm = 5", "expected true, false or the path of a socket"),
        ("allow = 5.5", "give a network such as 10.0.0.0/8"),
        ("allow = [true]", "expected a list of texts"),
        ("nfs2 = true", "expected \"on\" or \"off\""),
        ("nfs2 = '3'", "expected \"on\" or \"off\""),
        ("nfs4 = '3'", "\"3\" is not 4.0, 4.1, 4.2 or off"),
        (
            "one-sided-for = 'no-such-user'",
            "/etc/passwd lists no user",
        ),
        ("workers = -1", "give a whole number"),
        (
            "workers = []",
            "expected a whole number, found a value of type array",
        ),
        (
            "credits = true",
            "expected a number of credits, or \"adaptive\"",
        ),
    ] {
        let error = toml::from_str::<ServeOptions>(text).err().expect(text);
        let said = error.to_string();
        assert!(
            said.contains(wanted) && said.contains("line 1"),
            "{text}: {said}"
        );
    }
}

#[test]
fn one_value_stands_for_a_list_and_a_number_for_a_port_or_a_version() {
    let file = "dir = '/'\nallow = '10.0.0.0/8'\nnfs4 = 4.0\none-sided-for = 7\nnfs = 2049\nshm = true\nspin = 0";
    let options = toml::from_str::<ServeOptions>(file).unwrap();
    let config = options.server_config().unwrap();
    assert_eq!(config.allow, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(config.nfs, Some("127.0.0.1:2049".parse().unwrap()));
    assert_eq!(config.one_sided_for, [Grantee::User(7)]);
    assert_eq!(config.nfs4, MinorVersions::NONE.with(0));
    assert_eq!(config.spin, Duration::ZERO);
}

#[test]
fn version_2_is_served_if_it_is_asked_for() {
    let asked = |arguments: &str, file: &str| {
        let file = toml::from_str::<ServeOptions>(file).unwrap();
        let (options, _) = line(arguments).with_file(file).unwrap();
        options.server_config().unwrap().nfs2
    };
    assert!(!asked("/", ""));
    assert!(asked("/ --nfs2 on", ""));
    assert!(!asked("/ --nfs2 off", ""));
    assert!(asked("/", "nfs2 = 'on'"));
    assert!(!asked("/ --nfs2 off", "nfs2 = 'on'"));
    for text in ["nfs2 = '3'", "nfs2 = 2"] {
        assert!(toml::from_str::<ServeOptions>(text).is_err(), "{text}");
    }
}

/// What a command line asks for.
fn line(arguments: &str) -> ServeOptions {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }
    let arguments = ["serve"].into_iter().chain(arguments.split_whitespace());
    let line = <Line as clap::Parser>::try_parse_from(arguments).unwrap();
    line.options.shm_before_dir()
}

#[test]
fn shm_alone_is_the_socket_of_the_runtime_directory() {
    let default = listeners::default_socket().unwrap();
    for arguments in ["/ --shm", "--shm /", "/ --shm --read-only", "--shm -- /"] {
        let config = line(arguments).server_config().unwrap();
        assert_eq!(config.shm.as_ref(), Some(&default), "{arguments}");
        assert_eq!(config.directory, Path::new("/"), "{arguments}");
        assert!(config.nfs.is_none());
    }
    for arguments in ["/ --shm /x/s", "--shm /x/s /", "/ --shm=/x/s"] {
        let config = line(arguments).server_config().unwrap();
        assert_eq!(
            config.shm.as_deref(),
            Some(Path::new("/x/s")),
            "{arguments}"
        );
    }
    let said = line("--shm /x/s").server_config().unwrap_err().to_string();
    assert!(said.contains("/x/s is the socket"), "{said}");
}

#[test]
fn loopback_is_let_in_unless_it_is_left_out() {
    let config = line("/ --allow 10.0.0.0/8 --allow 10::1")
        .server_config()
        .unwrap();
    assert!(config.loopback && !config.insecure);
    assert_eq!(config.allow[1].to_string(), "10::1/128");
    let config = line("/ --allow 10.0.0.0/8 --allow no-loopback --insecure");
    let config = config.server_config().unwrap();
    assert!(!config.loopback && config.insecure && config.allow.len() == 1);
    assert!(
        line("/ --allow no-loopback")
            .server_config()
            .unwrap_err()
            .is::<Usage>()
    );
    assert!(line("/ --shm --allow no-loopback").server_config().is_ok());
    let file =
        "dir = '/'\nallow = ['10.0.0.0/8', 'no-loopback']\ninsecure = true\nshm-connections = 9";
    let config = toml::from_str::<ServeOptions>(file)
        .unwrap()
        .server_config()
        .unwrap();
    assert!(!config.loopback && config.insecure && config.shm_connections == 9);
    assert!(toml::from_str::<ServeOptions>("allow = ['10.0.0.0/33']").is_err());
}

#[test]
fn direct_reads_are_for_whom_they_cost_nothing_and_for_who_is_named() {
    let config = line("/").server_config().unwrap();
    assert_eq!(
        (config.direct, config.one_sided_for.len()),
        (Direct::Auto, 0)
    );
    let config = line("/ --one-sided-for 7,@root,all")
        .server_config()
        .unwrap();
    let named = [Grantee::User(7), Grantee::Group(0), Grantee::All];
    assert_eq!(config.one_sided_for, named);
    let file: ServeOptions = toml::from_str("dir = '/'\none-sided-for = ['@7']").unwrap();
    assert_eq!(
        file.server_config().unwrap().one_sided_for,
        [Grantee::Group(7)]
    );
    for direct in ["guarded", "off"] {
        let options = line(&format!("/ --direct {direct} --one-sided-for all"));
        assert!(options.server_config().unwrap_err().is::<Usage>());
    }
}

#[test]
fn workers_are_bounded() {
    for (workers, can_be) in [(0, false), (1, true), (1024, true), (1025, false)] {
        let file: ServeOptions =
            toml::from_str(&format!("dir = '/'\nworkers = {workers}")).unwrap();
        match file.server_config() {
            Ok(config) => assert!(can_be && config.workers == workers),
            Err(error) => assert!(!can_be && error.is::<Usage>(), "{error}"),
        }
    }
}

#[test]
fn what_changes_nothing_is_refused_on_the_line_and_warned_of_in_a_file() {
    let file = |text: &str| toml::from_str::<ServeOptions>(text).unwrap();
    for (arguments, option) in [
        ("/ --insecure", "--insecure"),
        ("/ --insecure --squash all", "--insecure"),
        ("/ --shm --squash root", "--squash"),
        ("/ --shm --allow 10.0.0.0/8", "--allow"),
        ("/ --shm --admit keys", "--admit"),
        ("/ --nfs 127.0.0.1:0 --admit keys", "--admit"),
        ("/ --nfs 127.0.0.1:0 --one-sided-for 7", "--one-sided-for"),
        (
            "/ --rdma 127.0.0.1:0 --shm-connections 9",
            "--shm-connections",
        ),
        ("/ --shm --credits 9", "--credits"),
        ("/ --nfs 127.0.0.1:0 --design read-read", "--design"),
        ("/ --shm --registration pooled", "--registration"),
        ("/ --shm --registration-cost 1us", "--registration-cost"),
        ("/ --shm --pinning-cost 1us", "--pinning-cost"),
        ("/ --shm --nfs2 on", "--nfs2"),
        ("/ --shm --nfs4 4.0", "--nfs4"),
        ("/ --shm --lease 10s", "--lease"),
        ("/ --shm --idmap names", "--idmap"),
        ("/ --nfs4 off --idmap names", "--idmap"),
        ("/ --nfs4 off --idmap-domain example.org", "--idmap-domain"),
    ] {
        let refused = line(arguments).with_file(file("")).err().unwrap();
        assert!(refused.is::<Usage>(), "{arguments}");
        assert!(refused.to_string().starts_with(option), "{refused}");
    }
    for arguments in [
        "/ --insecure --squash root",
        "/ --squash none --credits 9 --design read-read --registration pooled",
        "/ --nfs 127.0.0.1:0 --squash root --allow 10.0.0.0/8",
        "/ --rdma 127.0.0.1:0 --admit keys",
        "/ --shm --shm-connections 9",
        "/ --allow 10.0.0.0/8 --admit keys --shm-connections 9",
        "/ --nfs4 off --lease 10s --nfs2 on",
        "/ --rdma 127.0.0.1:0 --idmap names --idmap-domain example.org",
        // Callers without ids have these.
        "/ --squash none --anonuid 5",
        "/ --rdma 127.0.0.1:0 --shm --squash root --credits 9 --pinning-cost 1us",
    ] {
        let (_, warnings) = line(arguments).with_file(file("")).unwrap();
        assert!(warnings.is_empty(), "{arguments}: {warnings:?}");
    }
    let shared = "squash = 'root'\ncredits = 9\ninsecure = true";
    let (options, warnings) = line("/ --shm").with_file(file(shared)).unwrap();
    assert!(options.server_config().is_ok());
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let (_, warnings) = line("/ --insecure").with_file(file(shared)).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// Programs of other users trust a server of root alone.
#[test]
fn one_sided_reads_for_others_are_granted_by_root() {
    let none = ServeOptions::default();
    let granted = line("/ --shm --one-sided-for 7").with_file(none);
    let is_root = rustix::process::geteuid().is_root();
    match granted {
        Ok((_, warnings)) => assert!(is_root && warnings.is_empty()),
        Err(error) => assert!(!is_root && error.to_string().contains("serve as root")),
    }
}

#[test]
fn the_command_line_takes_back_a_switch_of_the_file() {
    let text = "dir = '/'\nread-only = true\ninsecure = true\nsquash = 'root'\nsmall-pages = true\nodp = true\n\
                verbs = '10.0.0.1:20049'";
    let file = || toml::from_str::<ServeOptions>(text).unwrap();
    let switches = |options: ServeOptions| {
        [
            options.read_only(),
            options.insecure(),
            options.small_pages(),
            options.odp(),
        ]
    };
    assert_eq!(switches(line("/").or(file())), [true; 4]);
    let off = "/ --read-only=false --insecure=false --small-pages=false --odp=false";
    assert_eq!(switches(line(off).or(file())), [false; 4]);
    let on = line("--read-only / --insecure --small-pages=true --odp");
    assert_eq!(on.dir.as_deref(), Some(Path::new("/")));
    assert_eq!(switches(on), [true; 4]);
}

/// A file may leave shared memory out of the defaults, and the command line may name it all the same.
#[test]
fn shared_memory_that_is_off_is_no_listener() {
    let configured = |arguments: &str, text: &str| {
        let file = toml::from_str::<ServeOptions>(text).unwrap();
        line(arguments).or(file).server_config().unwrap()
    };
    let config = configured("/", "shm = false");
    assert!(config.shm.is_none() && config.nfs.is_some() && config.rdma.is_some());
    let config = configured("/ --nfs 0", "shm = false");
    assert!(config.shm.is_none() && config.nfs.is_some() && config.rdma.is_none());
    let config = configured("/ --shm /x/s", "shm = false");
    assert!(config.shm.is_some() && config.nfs.is_none());
    let file = toml::from_str::<ServeOptions>("shm = false\nshm-connections = 9").unwrap();
    let (_, warnings) = line("/").with_file(file).unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}
