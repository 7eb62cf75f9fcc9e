//! What a series looks like: one colour and one shape for each route, in every plot.
//!
//! The colours are those of Okabe and Ito (2008), which colour-blind readers tell apart, moved where they had too little
//! contrast with the paper. Shapes say the same without any colour.

/// Names of the page's colours, on white and on dark paper.
pub(super) const COLOURS: [(&str, &str, &str); 20] = [
    ("paper", "#ffffff", "#14181f"),
    ("ink", "#1c2430", "#e8ebf0"),
    ("faint", "#566070", "#a9b3c0"),
    ("grid", "#dde2e8", "#323a46"),
    ("one-sided", "#009e73", "#2fc79a"),
    ("guarded", "#0072b2", "#56b4e9"),
    ("rpc", "#d55e00", "#f0814a"),
    ("cache", "#b5588f", "#df93bf"),
    ("nfs", "#9a7300", "#e9c534"),
    ("floor", "#7a5230", "#c9a07a"),
    ("local", "#6b7280", "#a8b0ba"),
    ("redis", "#882255", "#e0719b"),
    ("memcached", "#6b6b12", "#c2c257"),
    ("first", "#332288", "#a79bf0"),
    ("second", "#117733", "#6fce8d"),
    ("third", "#aa4499", "#e48fd6"),
    ("fourth", "#8a6d1f", "#ddcc77"),
    ("fifth", "#1f7f94", "#88ccee"),
    ("bad", "#b3261e", "#ff8a80"),
    ("good", "#1b6e3c", "#7fd6a2"),
];

/// The shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Ring,
    Square,
    OpenSquare,
    Diamond,
    OpenDiamond,
    Up,
    Down,
    Tick,
    Cross,
}

/// What a line or a mark stands for, with its colour and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// As legends and labels name it.
    pub name: String,
    pub(super) colour: &'static str,
    pub(super) shape: Shape,
}

/// Routes, peers and fabrics: name, colour, shape.
const KNOWN: [(&str, &str, Shape); 28] = [
    ("mmap", "local", Shape::Square),
    ("pread", "local", Shape::OpenSquare),
    ("floor", "floor", Shape::Tick),
    ("one-sided", "one-sided", Shape::Circle),
    ("guarded", "guarded", Shape::Diamond),
    ("rpc", "rpc", Shape::Up),
    ("cache", "cache", Shape::Down),
    ("policy", "ink", Shape::Ring),
    ("default", "ink", Shape::Diamond),
    ("nfs", "nfs", Shape::Cross),
    ("nfsv3", "nfs", Shape::Cross),
    ("nfs-ganesha", "nfs", Shape::OpenSquare),
    ("ganesha", "nfs", Shape::OpenSquare),
    ("libnfs", "nfs", Shape::OpenDiamond),
    ("knfsd", "nfs", Shape::Square),
    ("redis", "redis", Shape::OpenDiamond),
    ("memcached", "memcached", Shape::Square),
    ("one-sided+cache", "one-sided", Shape::OpenDiamond),
    ("guarded+cache", "guarded", Shape::OpenSquare),
    ("rpc+cache", "rpc", Shape::Down),
    ("spin-0us", "first", Shape::Circle),
    ("spin-5us", "third", Shape::Square),
    ("spin-50us", "fifth", Shape::Up),
    // The fabrics of calls, which are all RPC.
    ("shm", "rpc", Shape::Up),
    ("tcp", "first", Shape::Circle),
    ("verbs", "third", Shape::Square),
    ("read-read", "first", Shape::Circle),
    ("read-write", "third", Shape::Square),
];

const OTHERS: [(&str, Shape); 6] = [
    ("first", Shape::Circle),
    ("third", Shape::Square),
    ("second", Shape::Up),
    ("fourth", Shape::Diamond),
    ("fifth", Shape::Down),
    ("local", Shape::Cross),
];

impl Series {
    /// A route, a fabric or a peer by its name (`one-sided`, `rpc`, `nfs`, `redis`, …): it looks the same in every plot.
    /// What is not known looks like the first of [`Series::numbered`].
    pub fn of(name: &str) -> Self {
        Self::known(name).unwrap_or_else(|| Self::numbered(0, name))
    }

    /// The `number`th of things that are no routes: strategies, sizes, settings.
    pub fn numbered(number: usize, name: &str) -> Self {
        let (colour, shape) = OTHERS[number % OTHERS.len()];
        Self {
            name: name.to_owned(),
            colour,
            shape,
        }
    }

    /// [`Series::of`] a name that is known, [`Series::numbered`] otherwise.
    pub fn of_or_numbered(name: &str, number: usize) -> Self {
        Self::known(name).unwrap_or_else(|| Self::numbered(number, name))
    }

    /// The same look under another name.
    pub fn named(self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self
        }
    }

    /// The same as a dot, for legends.
    pub(super) fn with_circle(self) -> Self {
        Self {
            shape: Shape::Circle,
            ..self
        }
    }

    /// As a block, for parts of bars.
    pub fn as_block(self) -> Self {
        Self {
            shape: Shape::Square,
            ..self
        }
    }

    /// A published figure, of other hardware.
    pub(super) fn published(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            colour: "faint",
            shape: Shape::OpenDiamond,
        }
    }

    fn known(name: &str) -> Option<Self> {
        let lower = name.to_lowercase();
        let (_, colour, shape) = KNOWN.into_iter().find(|(known, ..)| *known == lower)?;
        Some(Self {
            name: name.to_owned(),
            colour,
            shape,
        })
    }
}

/// Declarations of the colours, and how plots use them: for a page, and for a plot by itself.
pub(super) fn css() -> String {
    let all = |of: fn(&(&str, &'static str, &'static str)) -> &'static str| -> String {
        let each = COLOURS.iter();
        each.map(|colour| format!("--{}:{};", colour.0, of(colour)))
            .collect()
    };
    format!(
        ":root{{color-scheme:light dark;{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}\
         svg{{max-width:100%;height:auto}}svg text{{font:13px system-ui,sans-serif;fill:var(--ink)}}\
         svg text.group,svg text.strong{{font-weight:bold}}svg text.faint{{fill:var(--faint)}}svg text.bad{{fill:var(--bad);font-weight:bold}}\
         svg .m{{text-anchor:middle}}svg .e{{text-anchor:end}}{}\
         svg .paper{{fill:var(--paper)}}svg .grid{{stroke:var(--grid)}}svg .axis{{stroke:var(--faint)}}\
         svg .band{{fill:var(--grid);opacity:.35}}\
         svg .full{{fill:var(--c);stroke:var(--c)}}svg .open{{fill:var(--paper);stroke:var(--c);stroke-width:2}}\
         svg .path{{fill:none;stroke:var(--c);stroke-width:2}}svg .spread{{stroke:var(--c);stroke-width:6;opacity:.4}}\
         svg .tail{{stroke:var(--c);stroke-width:1.3}}svg .dashed{{stroke-dasharray:5 4}}svg .part{{fill:var(--c)}}",
        all(|colour| colour.1),
        all(|colour| colour.2),
        COLOURS
            .map(|(name, ..)| format!(".c-{name}{{--c:var(--{name})}}"))
            .concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(hex: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            match value <= 0.040_45 {
                true => value / 12.92,
                false => ((value + 0.055) / 1.055).powf(2.4),
            }
        })
    }

    /// WCAG 2.1.
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex: &str| {
            let [r, g, b] = linear(hex);
            0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
        };
        let (a, b) = (luminance(a), luminance(b));
        a.max(b) / a.min(b)
    }

    #[test]
    fn every_colour_is_seen_on_both_papers() {
        let (_, light, dark) = COLOURS[0];
        for (name, on_light, on_dark) in &COLOURS[1..] {
            let least = match *name {
                "grid" => 1.2,
                "ink" => 7.0,
                "faint" | "bad" | "good" => 4.5,
                _ => 3.0,
            };
            for (colour, paper) in [(on_light, light), (on_dark, dark)] {
                let found = contrast(colour, paper);
                assert!(found >= least, "{name} {colour} on {paper}: {found:.2}");
            }
        }
    }

    #[test]
    fn no_two_series_look_the_same_unless_they_are() {
        for (number, (name, colour, shape)) in KNOWN.iter().enumerate() {
            for (other, ..) in KNOWN[..number]
                .iter()
                .filter(|known| (known.1, known.2) == (*colour, *shape))
            {
                let same = [
                    ["nfs", "nfsv3"],
                    ["nfs-ganesha", "ganesha"],
                    ["rpc", "shm"],
                    ["spin-0us", "tcp"],
                    ["spin-0us", "read-read"],
                    ["tcp", "read-read"],
                    ["spin-5us", "verbs"],
                    ["spin-5us", "read-write"],
                    ["verbs", "read-write"],
                ];
                assert!(same.contains(&[*other, *name]), "{other} {name}");
            }
            assert!(COLOURS.iter().any(|known| known.0 == *colour));
        }
    }
}
