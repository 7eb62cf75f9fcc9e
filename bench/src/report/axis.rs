//! Values to places, and the values that an axis names.

use crate::table;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time, given in nanoseconds, shown in ns, us, ms or s.
    Nanoseconds,
    /// A length, given in bytes, shown in B, KiB, MiB or GiB.
    Bytes,
    /// A plain number; what it counts is in the axis' title.
    Number,
    /// A share, given in percent.
    Percent,
    /// So many times as much.
    Ratio,
}

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By their logarithm. Values that are not above zero are not drawn.
    Log,
    /// By their logarithm where the highest is more than eight times the lowest.
    Auto,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What the values are; the unit, where [`Unit`] does not say it: `Throughput (MiB/s)`.
    pub title: String,
    /// What a value is.
    pub unit: Unit,
    /// How they lie.
    pub scale: Scale,
}

impl Axis {
    /// Latencies or other times, by their logarithm.
    pub fn time(title: &str) -> Self {
        Self::new(title, Unit::Nanoseconds, Scale::Log)
    }

    /// An axis.
    pub fn new(title: &str, unit: Unit, scale: Scale) -> Self {
        Self {
            title: title.to_owned(),
            unit,
            scale,
        }
    }
}

impl Unit {
    /// A value as a person reads it, to three digits.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds if value < 100.0 && value.fract() != 0.0 => format!("{value:.1} ns"),
            Self::Nanoseconds => table::time(value.round() as u64),
            Self::Bytes => table::bytes(value.round() as u64),
            Self::Percent => format!("{} %", plain(value)),
            Self::Ratio => match value {
                v if v < 10.0 => format!("{v:.2}"),
                v if v < 100.0 => format!("{v:.1}"),
                v => format!("{v:.0}"),
            },
            Self::Number => plain(value),
        }
    }

    /// A value of an axis, without digits that say nothing.
    fn tick(self, value: f64) -> String {
        match self {
            Self::Nanoseconds if value == 0.0 => "0".to_owned(),
            Self::Nanoseconds => {
                let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
                let (size, unit) = (units.into_iter())
                    .find(|(size, _)| value >= size * 0.999_999)
                    .unwrap_or((1.0, "ns"));
                format!("{} {unit}", trimmed(value / size))
            }
            Self::Bytes => table::bytes(value.round() as u64),
            Self::Percent => format!("{} %", trimmed(value)),
            Self::Number | Self::Ratio => trimmed(value),
        }
    }
}

fn plain(value: f64) -> String {
    match value.abs() {
        v if v == v.round() || v >= 100.0 => table::count(value.round() as u64),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn trimmed(value: f64) -> String {
    let digits = format!("{value:.4}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    match value == value.round() && value >= 0.0 {
        true => table::count(value as u64),
        false => digits.to_owned(),
    }
}

/// An axis that knows its values and its place.
pub(super) struct Placing {
    unit: Unit,
    log: bool,
    low: f64,
    high: f64,
    /// The place of the lowest value and of the highest.
    from: f64,
    to: f64,
}

impl Placing {
    /// An axis for these values between two places.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        let above = || values.iter().copied().filter(|v| *v > 0.0);
        let (lowest, highest) = (
            above().fold(f64::INFINITY, f64::min),
            above().fold(0.0, f64::max),
        );
        let log = match axis.scale {
            Scale::Linear => false,
            Scale::Log => lowest.is_finite(),
            Scale::Auto => lowest.is_finite() && highest > 8.0 * lowest,
        };
        let (low, high) = match log {
            false => (0.0, top(highest)),
            true => {
                // A margin, and never so little that nothing could be read from the axis.
                let margin = (highest / lowest).powf(0.04).max(1.06);
                let (low, high) = (lowest / margin, highest * margin);
                let short = (2.5 / (high / low)).sqrt().max(1.0);
                (low / short, high * short)
            }
        };
        Self {
            unit: axis.unit,
            log,
            low,
            high,
            from,
            to,
        }
    }

    /// The place of a value; none of one that the axis cannot have.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = match self.log {
            true if value <= 0.0 => return None,
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        let place = self.from + share.clamp(0.0, 1.0) * (self.to - self.from);
        place.is_finite().then_some(place)
    }

    /// Where the axis begins: what fills up to a value is drawn from there.
    pub fn origin(&self) -> f64 {
        self.from
    }

    /// Values to name, with their places, no more than lie `apart` from each other.
    pub fn ticks(&self, apart: impl Fn(&str) -> f64) -> Vec<(f64, String)> {
        const FACTORS: [&[f64]; 4] = [
            &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            &[1.0, 2.0, 3.0, 5.0],
            &[1.0, 2.0, 5.0],
            &[1.0, 3.0],
        ];
        let mut tries: Vec<Vec<f64>> = Vec::new();
        match self.log {
            false => {
                let base = 10f64.powf(self.high.log10().floor() - 1.0);
                for step in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0] {
                    let step = step * base;
                    let count = (self.high / step * 1.000_001) as u32;
                    if count <= 8 {
                        tries.push((0..=count).map(|n| f64::from(n) * step).collect());
                    }
                }
            }
            true => {
                for factors in FACTORS {
                    tries.push(self.powers(1, factors));
                }
                (1..6).for_each(|step| tries.push(self.powers(step, &[1.0])));
            }
        }
        // The finest whose names do not meet, of few enough.
        let places = |values: &Vec<f64>| -> Vec<(f64, String)> {
            let named = values
                .iter()
                .filter_map(|v| Some((self.place(*v)?, self.unit.tick(*v))));
            named.collect()
        };
        let fits = |ticks: &[(f64, String)]| {
            ticks.len() <= 9
                && (ticks.windows(2)).all(|pair| {
                    (pair[1].0 - pair[0].0).abs() >= (apart(&pair[0].1) + apart(&pair[1].1)) / 2.0
                })
        };
        let fitting = (tries.iter().map(places)).find(|ticks| fits(ticks) && ticks.len() > 1);
        fitting.unwrap_or_else(|| {
            // Then some of the finest.
            let mut some: Vec<(f64, String)> = Vec::new();
            for tick in tries.first().map(places).unwrap_or_default() {
                let meets = |last: &(f64, String)| {
                    (tick.0 - last.0).abs() < f64::midpoint(apart(&tick.1), apart(&last.1))
                };
                if !some.last().is_some_and(meets) {
                    some.push(tick);
                }
            }
            some
        })
    }

    /// These factors times every `step`th power of ten, as far as they lie on the axis.
    fn powers(&self, step: usize, factors: &[f64]) -> Vec<f64> {
        let powers = (-9..=15).step_by(step).map(|power| 10f64.powi(power));
        let all = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
        all.filter(|v| (self.low * 0.999..=self.high * 1.001).contains(v))
            .collect()
    }

    /// These values and their names, without those whose names would meet.
    pub fn named(&self, values: &[f64], apart: impl Fn(&str) -> f64) -> Vec<(f64, Option<String>)> {
        let mut taken = f64::NEG_INFINITY;
        let named = values.iter().filter_map(|value| {
            let (place, name) = (self.place(*value)?, self.unit.tick(*value));
            let half = apart(&name) / 2.0;
            let fits = place - half >= taken;
            if fits {
                taken = place + half;
            }
            Some((place, fits.then_some(name)))
        });
        named.collect()
    }
}

/// The end of an axis from zero: a round value, not far above the highest.
fn top(highest: f64) -> f64 {
    if highest <= 0.0 {
        return 1.0;
    }
    let base = 10f64.powf(highest.log10().floor());
    let factors = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let fits = |factor: &f64| highest <= factor * base * 1.000_001;
    base * factors.into_iter().find(fits).unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(unit: Unit, scale: Scale, values: [f64; 2], room: f64) -> Vec<String> {
        let placing = Placing::new(&Axis::new("", unit, scale), values.into_iter(), (0.0, room));
        let ticks = placing.ticks(|name| name.len() as f64 * 9.0);
        ticks.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn axes_name_few_round_values() {
        use Scale::{Linear, Log};
        use Unit::{Bytes, Nanoseconds, Number, Percent, Ratio};
        for (unit, scale, values) in [
            (Nanoseconds, Log, [190.0, 60_000_000.0]),
            (Nanoseconds, Log, [500.0, 520.0]),
            (Nanoseconds, Log, [0.3, 7.0]),
            (Bytes, Log, [512.0, 1e6]),
            (Number, Linear, [0.0, 2587.0]),
            (Number, Linear, [0.0, 0.9]),
            (Percent, Linear, [0.0, 100.0]),
            (Ratio, Log, [0.2, 127.0]),
        ] {
            for room in [200.0, 400.0, 800.0] {
                let found = names(unit, scale, values, room);
                assert!(
                    (2..=9).contains(&found.len()),
                    "{values:?} {room}: {found:?}"
                );
            }
        }
        let found = names(Nanoseconds, Log, [190.0, 60_000_000.0], 500.0);
        assert_eq!(found, ["1 us", "10 us", "100 us", "1 ms", "10 ms"]);
    }

    #[test]
    fn values_keep_to_their_axis() {
        let axis = Axis::time("");
        let placing = Placing::new(&axis, [100.0, 1000.0].into_iter(), (10.0, 110.0));
        assert_eq!(placing.place(0.0), None);
        let places = [100.0, 1000.0].map(|v| placing.place(v).unwrap());
        assert!(10.0 < places[0] && places[0] < places[1] && places[1] < 110.0);
        let empty = Placing::new(&axis, std::iter::empty(), (0.0, 1.0));
        assert!(empty.ticks(|_| 1.0).len() < 10);
    }

    #[test]
    fn units_are_those_a_person_reads() {
        assert_eq!(Unit::Nanoseconds.show(60_000_000.0), "60.0 ms");
        assert_eq!(Unit::Number.show(2587.4), "2,587");
        assert_eq!(Unit::Ratio.show(1.104), "1.10");
        assert_eq!(Unit::Bytes.tick(4096.0), "4 KiB");
    }
}
