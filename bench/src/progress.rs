//! How far a long step has come.

/// Hears of further bytes, of `all` in the end, and has `tick` tell each whole percent of `what` once.
pub fn percents<'a>(
    what: &'a str,
    all: u64,
    tick: &'a mut (impl FnMut(&str) + ?Sized),
) -> impl FnMut(u64) + 'a {
    let (mut done, mut told) = (0u64, None);
    move |bytes| {
        done += bytes;
        let percent = (u128::from(done) * 100 / u128::from(all.max(1))) as u64;
        if told != Some(percent) {
            told = Some(percent);
            tick(&format!("{what}: {percent} %"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::percents;

    #[test]
    fn each_is_told_once() {
        let mut told = Vec::new();
        let mut tick = |what: &str| told.push(what.to_owned());
        let mut further = percents("writing", 1000, &mut tick);
        [5, 5, 4, 986].into_iter().for_each(&mut further);
        drop(further);
        assert_eq!(told, ["writing: 0 %", "writing: 1 %", "writing: 100 %"]);
    }
}
