//! Who may call, by the options of the start, and by those of a later reading.

use super::Server;
use crate::process::config::{Direct, ExportOptions, ServerConfig};
use crate::rpc::access::Rule;

impl Server {
    /// Takes over `allow`, `loopback`, `squash`, `anonymous` and `insecure` of these options, for the server and each export. A
    /// client that may reach less than before, or as someone else, loses its sessions and with them its references. All else stays
    /// as it was at the start.
    ///
    /// # Errors
    /// The exports are not those of the start, or clients of other hosts read the memory itself, which nobody can take back
    /// from them. The text says what to do. Nothing has changed then.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), String> {
        let same = |old: &ExportOptions, new: &ExportOptions| {
            (&old.name, &old.directory, old.read_only) == (&new.name, &new.directory, new.read_only)
        };
        let (old, new) = (&self.config.exports, &config.exports);
        let known = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
        if !known || (old.is_empty() && self.config.directory != config.directory) {
            return Err(
                "what is served, and under which names, changes only with a restart: restart the server"
                    .to_owned(),
            );
        }
        if old
            .iter()
            .zip(new)
            .any(|(old, new)| old.direct != new.direct)
        {
            return Err(
                "direct= of an export changes only with a restart, because clients have references and memory of before: restart the server"
                    .to_owned(),
            );
        }
        if self.config.direct == Direct::OneSided {
            return Err(
                "with --direct one-sided, clients of other machines have the memory of the cache: restart the server"
                    .to_owned(),
            );
        }
        let access = self.assembly.service().access();
        let replaced = access.replace(config.rule(), config.export_rules().collect())?;
        self.assembly.service().rules_changed();
        let export = self.assembly.export();
        let closed = export.close_sessions(|address| replaced.concerns(address));
        tracing::info!(sessions_closed = closed, "options of access reloaded");
        Ok(())
    }
}

impl ServerConfig {
    /// Who may call the server, where no export says otherwise.
    pub(super) fn rule(&self) -> Rule {
        Rule {
            allow: self.allow.clone(),
            loopback: self.loopback,
            squash: self.squash,
            anonymous: self.anonymous,
            any_port: self.insecure,
        }
    }

    /// Who may reach each export, in their order.
    pub(super) fn export_rules(&self) -> impl Iterator<Item = Rule> {
        self.exports.iter().map(|export| Rule {
            allow: export.allow.clone().unwrap_or_else(|| self.allow.clone()),
            loopback: self.loopback && !export.no_loopback,
            squash: export.squash.unwrap_or(self.squash),
            anonymous: export.anonymous.or(self.anonymous),
            any_port: self.insecure || export.insecure,
        })
    }
}
