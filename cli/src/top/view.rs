//! A report as lines of text.

use odafs_bench::table::{self, count};

use super::report::{ClientRow, PoolRow, ProcedureRow, Report, SlowRow};

/// The format of the lines.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Number of columns. Longer lines are cut.
    pub width: usize,
    /// Number of lines. Further ones are left out.
    pub height: usize,
    /// Whether headings are bold.
    pub bold: bool,
}

impl Look {
    /// The format for a file.
    pub fn plain() -> Self {
        Self {
            width: 80,
            height: usize::MAX,
            bold: false,
        }
    }
}

/// The most procedures, clients and slow calls on a large screen.
const ROWS: usize = 20;
/// The fewest rows of a table, on the smallest screen.
const ROWS_MIN: usize = 3;

/// The view of a server.
pub fn lines(report: &Report, look: Look) -> Vec<String> {
    let mut lines = head(report);
    let tables = [
        procedures(&report.procedures),
        clients(&report.clients),
        slow_calls(&report.slow_calls),
    ];
    // The last table shows rare events. It gets the lines that the others leave.
    let mut left = look.height.saturating_sub(lines.len());
    for (at, mut table) in tables.into_iter().enumerate() {
        let others = (2 - at) * (ROWS_MIN + 2);
        let room = left.saturating_sub(others).clamp(0, ROWS + 2);
        table.truncate(room.max(ROWS_MIN + 2));
        left = left.saturating_sub(table.len());
        lines.extend(table);
    }
    finish(lines, look)
}

/// The view while the server does not answer.
pub fn waiting(server: &str, why: &str, look: Look) -> Vec<String> {
    let mut lines = vec![Line::Heading(format!("waiting for {server}"))];
    lines.extend(wrapped(why, look.width).into_iter().map(Line::Text));
    lines.push(Line::Text(String::new()));
    lines.push(Line::Text("q or Ctrl-C quits".to_owned()));
    finish(lines, look)
}

/// A line that is not yet cut.
enum Line {
    Heading(String),
    Text(String),
}

fn finish(lines: Vec<Line>, look: Look) -> Vec<String> {
    let lines = lines.into_iter().take(look.height).map(|line| match line {
        Line::Heading(text) if look.bold => format!("\x1b[1m{}\x1b[0m", cut(&text, look.width)),
        Line::Heading(text) | Line::Text(text) => cut(&text, look.width),
    });
    lines.collect()
}

/// Cuts a text to a width. Characters from the server must not control the terminal, and each must take one column, so
/// others become `?`.
fn cut(text: &str, width: usize) -> String {
    let shown = |c: char| {
        if c == ' ' || c.is_ascii_graphic() {
            c
        } else {
            '?'
        }
    };
    let cut: String = text.chars().map(shown).take(width).collect();
    cut.trim_end().to_owned()
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

fn head(report: &Report) -> Vec<Line> {
    let mut lines = vec![
        Line::Heading(format!(
            "odafs {} at {}   up {}   interval {:.1} s",
            report.version,
            report.server,
            up(report.up_seconds),
            report.interval_seconds
        )),
        Line::Text(format!(
            "calls    {}/s   {}/s   page hits {}",
            rate(report.calls_per_second),
            bytes(report.bytes_per_second),
            percent(report.page_hit_share)
        )),
        Line::Text(format!(
            "direct   {}/s, {} of reads   refused {}",
            rate(report.direct_reads_per_second),
            percent(report.direct_share),
            listed(&report.direct_refusals_per_second, |refused| format!(
                "{}/s",
                rate(refused)
            ))
        )),
        Line::Text(format!(
            "open     sessions {}   connections {}",
            count(report.sessions as u64),
            listed(&report.connections, |open| count(open as u64))
        )),
        Line::Text(format!(
            "cache    {} of {}   evictions {}/s",
            bytes(report.cache_used_bytes),
            bytes(report.cache_bytes),
            rate(report.evictions_per_second)
        )),
        Line::Text(queues(&report.pools, report.memory_waiting)),
    ];
    if report.interval_seconds == 0.0 {
        lines.push(Line::Text(
            "the rates follow with the second sample".to_owned(),
        ));
    }
    lines
}

fn queues(pools: &[PoolRow], memory_waiting: f64) -> String {
    let pool = |row: &PoolRow| {
        let PoolRow {
            pool,
            threads,
            running,
            waiting,
        } = row;
        format!("{pool} {running}/{threads} busy, {waiting} wait   ")
    };
    let pools: String = pools.iter().map(pool).collect();
    format!("queues   {pools}RDMA memory {memory_waiting} wait")
}

fn table_of<T>(heading: String, rows: &[T], row: impl Fn(&T) -> String) -> Vec<Line> {
    if rows.is_empty() {
        return Vec::new();
    }
    let head = [Line::Text(String::new()), Line::Heading(heading)];
    let rows = rows.iter().map(|of| Line::Text(row(of)));
    head.into_iter().chain(rows).collect()
}

fn procedures(rows: &[ProcedureRow]) -> Vec<Line> {
    let heading = format!(
        "{:<26} {:>12} {:>11} {:>11} {:>12}",
        "PROCEDURE", "calls/s", "p50", "p99", "errors/s"
    );
    table_of(heading, rows, |row| {
        format!(
            "{:<26} {:>12} {:>11} {:>11} {:>12}",
            format!("{} {}", row.program, row.procedure),
            rate(row.calls_per_second),
            time(row.p50_seconds),
            time(row.p99_seconds),
            rate(row.errors_per_second)
        )
    })
}

fn clients(rows: &[ClientRow]) -> Vec<Line> {
    let heading = format!(
        "{:<40} {:>12} {:>14}",
        "CLIENT (estimated)", "calls/s", "bytes/s"
    );
    table_of(heading, rows, |row| {
        format!(
            "{:<40} {:>12} {:>14}",
            row.client,
            rate(row.calls_per_second),
            bytes(row.bytes_per_second)
        )
    })
}

fn slow_calls(rows: &[SlowRow]) -> Vec<Line> {
    let heading = format!(
        "{:<18} {:>9} {:>6}  {:<22} {}",
        "SLOW CALL", "took", "ago", "client", "file"
    );
    table_of(heading, rows, |row| {
        let call = &row.call;
        format!(
            "{:<18} {:>9} {:>6}  {:<22} {}",
            call.procedure,
            time(Some(call.microseconds as f64 / 1e6)),
            format!("{:.0} s", row.seconds_ago),
            call.client,
            call.file
        )
    })
}

fn listed(
    values: &std::collections::BTreeMap<String, f64>,
    shown: impl Fn(f64) -> String,
) -> String {
    let each: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("{name} {}", shown(*value)))
        .collect();
    match each.is_empty() {
        true => "none".to_owned(),
        false => each.join(", "),
    }
}

/// A rate per second.
fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{small:.1}"),
        rate => count(rate.round() as u64),
    }
}

fn bytes(bytes: f64) -> String {
    table::bytes(bytes.max(0.0).round() as u64)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        Some(s) if s < 1e-3 => format!("{:.1} us", s * 1e6),
        Some(s) if s < 1.0 => format!("{:.1} ms", s * 1e3),
        Some(s) => format!("{s:.2} s"),
    }
}

fn up(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match days {
        0 => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        days => format!("{days} d {hours:02}:{minutes:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::figures::SlowCall;

    fn report() -> Report {
        let procedure = |number: u32| ProcedureRow {
            program: "nfs3".to_owned(),
            procedure: format!("PROCEDURE{number}"),
            calls_per_second: 1e9,
            p50_seconds: Some(2e-7),
            p99_seconds: Some(1.5),
            errors_per_second: 123_456_789.0,
        };
        let client = |number: u32| ClientRow {
            client: format!("2001:db8:ffff:ffff:ffff:ffff:ffff:{number}"),
            calls_per_second: 3.25,
            bytes_per_second: 1e12,
        };
        let slow = |_| SlowRow {
            call: SlowCall {
                procedure: "READ".to_owned(),
                client: "10.0.0.1:700".to_owned(),
                file: format!("77/\x1b[2J\u{9b}{}", "x".repeat(200)),
                microseconds: 250_000,
                ..SlowCall::default()
            },
            seconds_ago: 4.0,
        };
        Report {
            server: "127.0.0.1:9049".to_owned(),
            interval_seconds: 1.0,
            procedures: (0..30).map(procedure).collect(),
            clients: (0..30).map(client).collect(),
            slow_calls: (0..30).map(slow).collect(),
            direct_refusals_per_second: [("stale".to_owned(), 5.0)].into(),
            ..Report::default()
        }
    }

    #[test]
    fn every_line_fits_every_screen_and_all_tables_are_on_an_ordinary_one() {
        for (width, height) in [(80, 24), (80, 25), (132, 60), (40, 10), (10, 3), (1, 1)] {
            let look = Look {
                width,
                height,
                bold: false,
            };
            let lines = lines(&report(), look);
            assert!(lines.len() <= height, "{} of {height}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= width));
            if (width, height) == (80, 24) {
                let text = lines.join("\n");
                for heading in ["PROCEDURE ", "CLIENT ", "SLOW CALL"] {
                    assert!(text.contains(heading), "{heading}: {text}");
                }
                assert!(
                    text.contains("250.0 ms") && text.contains("stale 5.0/s"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn what_a_server_says_does_not_steer_the_terminal() {
        let text = lines(&report(), Look::plain()).join("\n");
        assert!(text.contains("77/?[2J?xxx"), "{text}");
        assert!(!text.contains('\x1b') && text.is_ascii());
        let waiting = waiting("h:1", "\x1b[2J nobody listens", Look::plain());
        assert_eq!(waiting[0], "waiting for h:1");
        assert!(waiting[1].starts_with("?[2J nobody"), "{waiting:?}");
    }

    #[test]
    fn headings_stand_out_where_they_may() {
        let look = Look {
            bold: true,
            ..Look::plain()
        };
        assert!(lines(&report(), look)[0].starts_with("\x1b[1modafs"));
        assert_eq!(up(90061.0), "1 d 01:01");
        assert_eq!(up(61.0), "00:01:01");
    }
}
