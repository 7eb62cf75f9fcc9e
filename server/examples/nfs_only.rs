//! NFS of a directory, nothing else: `nfs_only DIR STATE ADDR [--allow CIDR]`.
use odafs_common::page::PageSize;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_server::*;
use std::sync::Arc;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = std::path::Path::new(&args[1]);
    let state = state::StateDir::open(Some(std::path::Path::new(&args[2])), dir).unwrap();
    let store: Arc<dyn store::Store> = Arc::new(
        store::LocalStore::open(dir, &state, store::LocalOptions { read_only: false }).unwrap(),
    );
    let arena = Arc::new(
        Arena::create(&ArenaConfig {
            frames: 1 << 17,
            page: PageSize::DEFAULT,
            huge: std::env::var("HUGE").is_ok(),
            populate: false,
        })
        .unwrap(),
    );
    let export = Arc::new(export::Export::new(
        export::ExportConfig {
            change_base: state.life() << 40,
            ..Default::default()
        },
        store,
        arena,
    ));
    let allow = args[4..].iter().map(|net| net.parse().unwrap()).collect();
    let access = Arc::new(access::Access::new(
        allow,
        config::Squash::None,
        store::Credential::of_this_process(),
    ));
    let port = portmap::Port::default();
    let programs: Vec<Box<dyn rpc::Program>> = vec![
        Box::new(nfs3::Nfs3::new(export.clone())),
        Box::new(mount::MountProgram::new(export.clone(), access.clone())),
        Box::new(portmap::Portmap::new(
            [(100003, 3), (100005, 3)],
            port.clone(),
        )),
    ];
    let service = Arc::new(rpc::Service::new(
        programs,
        access,
        drc::DuplicateCache::new(16384.try_into().unwrap()),
    ));
    let pool = Arc::new(pool::Pool::start(8, 1024).unwrap());
    let listener = std::net::TcpListener::bind(&args[3]).unwrap();
    port.set(listener.local_addr().unwrap().port());
    println!("ready nfs={}", listener.local_addr().unwrap());
    let server = tcp::TcpServer::start(listener, 2, service, pool, tcp::Limits::default()).unwrap();
    let observed = export.clone();
    std::thread::spawn(move || {
        loop {
            change::observe(&observed, std::time::Duration::from_secs(1));
            change::check_unwatched(&observed);
            observed.tick(odafs_fabric::clock::now());
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .unwrap()
            .recv()
            .await;
    });
    server.shutdown();
}
