//! What holds from the start of a server to its end.

use super::ServeOptions;
use super::exports::Exported;

impl ServeOptions {
    /// The options that differ in `new`, and that a server does not take over while it runs. (It refuses to reload if other
    /// directories are to be served, and the keys of `admit` are compared by whoever has read them.)
    pub fn fixed_options_changed(&self, new: &Self) -> Vec<&'static str> {
        let names = |options: &Self| -> Vec<String> {
            let names = options.export.iter().map(Exported::name);
            names.map(str::to_owned).collect()
        };
        let changed = [
            ("export", names(self) != names(new)),
            ("nfs", self.nfs != new.nfs),
            ("portmap", self.portmap != new.portmap),
            ("shm", self.shm != new.shm),
            (
                "shm-connections",
                self.shm_connections != new.shm_connections,
            ),
            ("rdma", self.rdma != new.rdma),
            ("verbs", self.verbs != new.verbs),
            ("metrics", self.metrics != new.metrics),
            ("nfs2", self.nfs2 != new.nfs2),
            ("nfs4", self.nfs4 != new.nfs4),
            ("lease", self.lease != new.lease),
            ("idmap", self.idmap != new.idmap),
            ("idmap-domain", self.idmap_domain != new.idmap_domain),
            ("slow-call", self.slow_call != new.slow_call),
            ("state", self.state != new.state),
            ("cache", self.cache != new.cache),
            ("page", self.page != new.page),
            ("read-only", self.read_only() != new.read_only()),
            ("direct", self.direct != new.direct),
            ("one-sided-for", self.one_sided_for != new.one_sided_for),
            ("spin", self.spin != new.spin),
            ("workers", self.workers != new.workers),
            ("small-pages", self.small_pages() != new.small_pages()),
            ("credits", self.credits != new.credits),
            ("design", self.design != new.design),
            ("odp", self.odp() != new.odp()),
            ("read-order", self.read_order != new.read_order),
            ("registration", self.registration != new.registration),
            (
                "registration-cost",
                self.registration_cost != new.registration_cost,
            ),
            ("pinning-cost", self.pinning_cost != new.pinning_cost),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(name, _)| name).collect()
    }
}
