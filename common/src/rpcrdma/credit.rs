//! Credits (RFC 8166, section 3.3.1): how many calls a requester may have under way. Fixed, or adapted to the load by
//! the algorithms of "Optimizing OpenSolaris NFS over RDMA", figures 10 and 11.

/// How many credits a requester asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPolicy {
    /// Always this many.
    Fixed(u32),
    /// More while many calls are under way (figure 10).
    Adaptive(AdaptiveRequests),
}

/// Figure 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveRequests {
    /// Credits asked for when there are enough: `min_client`.
    pub min: u32,
    /// Never more: as many replies there is room for.
    pub max: u32,
    /// So many credits unused are enough: `threshold`.
    pub threshold: u32,
    /// What calls under way weigh, in hundredths: `f_client`.
    pub factor_percent: u32,
}

impl RequestPolicy {
    /// The most that it ever asks for.
    pub fn max(&self) -> u32 {
        match *self {
            Self::Fixed(credits) => credits.max(1),
            Self::Adaptive(adaptive) => adaptive.max.max(1),
        }
    }

    /// Credits to ask for with the next call, given those granted last and the calls under way. At least 1.
    pub fn request(&self, granted: u32, under_way: u32) -> u32 {
        let Self::Adaptive(adaptive) = *self else {
            return self.max();
        };
        let request = if granted.saturating_sub(under_way) >= adaptive.threshold {
            u64::from(adaptive.min)
        } else {
            u64::from(adaptive.min) + percent(under_way, adaptive.factor_percent)
        };
        request.clamp(1, u64::from(self.max())) as u32
    }
}

/// How many credits a responder grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantPolicy {
    /// Always this many.
    Fixed(u32),
    /// As many as are asked for, as long as there is enough for everybody (figure 11).
    Adaptive(AdaptiveGrants),
}

/// Figure 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveGrants {
    /// Buffers that there are for each client when all have as many: `average`.
    pub average: u32,
    /// Never more for one client.
    pub max: u32,
    /// What is asked for above the average counts so much, in hundredths: `f_server`.
    pub factor_percent: u32,
}

impl GrantPolicy {
    /// Credits to grant, given those asked for and those granted last. At least 1.
    pub fn grant(&self, requested: u32, posted: u32) -> u32 {
        let wanted = match self {
            Self::Fixed(credits) => *credits,
            Self::Adaptive(adaptive) => adaptive.wanted(requested, posted),
        };
        wanted.max(1)
    }
}

impl AdaptiveGrants {
    fn wanted(&self, requested: u32, posted: u32) -> u32 {
        let average = self.average.min(self.max);
        let wanted = if requested <= posted {
            // The figure limits what is posted. Above the average, credits that nobody asks for are returned.
            u64::from(posted.min(requested.max(average)))
        } else if requested <= average {
            u64::from(requested)
        } else {
            u64::from(average) + percent(requested - average, self.factor_percent)
        };
        wanted.min(u64::from(self.max)) as u32
    }
}

fn percent(count: u32, percent: u32) -> u64 {
    u64::from(count) * u64::from(percent) / 100
}
