//! The report in a browser: every plot has all of its marks, nothing overlaps or is cut, and both themes can be read.
//!
//! Without Chromium it says that it is skipped; with `ODAFS_BROWSER=required` it fails then.

mod fixture;

use std::path::{Path, PathBuf};
use std::process::Command;

use odafs_bench::report::{
    Axis, Dots, DotsRow, Line, Lines, Page, Point, PublishedFigure, Scale, Series, Unit, draw,
    load_plot, readme_plot,
};
use serde_json::Value;

/// Looks at the page from within, and leaves what it finds in the element `found`.
const LOOK: &str = r"
const faults = [], fault = (svg, text) => faults.push((svg.getAttribute('aria-label') || 'page') + ': ' + text);
const number = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
const luminance = colour => {
  const [r, g, b] = number(colour).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
};
const paper = getComputedStyle(document.body).backgroundColor;
const contrast = colour => {
  const [a, b] = [luminance(colour), luminance(paper)];
  return Math.max(a, b) / Math.min(a, b);
};
const box = element => { const b = element.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height]; };
const over = (a, b) => a[0] < b[2] - 0.5 && b[0] < a[2] - 0.5 && a[1] < b[3] - 0.5 && b[1] < a[3] - 0.5;
let marks = 0;
const svgs = [...document.querySelectorAll('svg')];
for (const svg of svgs) {
  const view = svg.viewBox.baseVal, edge = [view.x, view.y, view.x + view.width, view.y + view.height];
  const inside = b => b[0] >= edge[0] - 0.5 && b[1] >= edge[1] - 0.5 && b[2] <= edge[2] + 0.5 && b[3] <= edge[3] + 0.5;
  const texts = [...svg.querySelectorAll('text')].map(t => {
    // Of a line's height a few units above and below its letters are empty.
    const b = box(t);
    return { text: t.textContent, box: [b[0], b[1] + 2, b[2], b[3] - 2], colour: getComputedStyle(t).fill };
  });
  const drawn = [...svg.querySelectorAll('.mark')];
  marks += drawn.length;
  const values = Number(svg.closest('figure').dataset.values);
  if (drawn.length !== values) fault(svg, drawn.length + ' marks for ' + values + ' values');
  texts.forEach((a, n) => {
    if (a.text === '') fault(svg, 'an empty text');
    if (!inside(a.box)) fault(svg, '«' + a.text + '» is cut');
    if (contrast(a.colour) < 4.5) fault(svg, '«' + a.text + '» has too little contrast');
    for (const b of texts.slice(0, n)) if (over(a.box, b.box)) fault(svg, '«' + a.text + '» lies over «' + b.text + '»');
  });
  for (const mark of drawn) {
    const shape = mark.lastElementChild, b = box(shape), said = mark.textContent, style = getComputedStyle(shape);
    if (!(b[2] > b[0] || b[3] > b[1])) fault(svg, 'the mark of ' + said + ' is not seen');
    if (!inside(b)) fault(svg, 'the mark of ' + said + ' is cut');
    if (!texts.every(t => !over(t.box, b))) fault(svg, 'the mark of ' + said + ' lies over a text');
    if (!/\d/.test(said)) fault(svg, 'a mark without a value');
    const colours = [style.fill, style.stroke].filter(c => c !== 'none');
    if (!colours.some(c => contrast(c) >= 3)) fault(svg, 'the mark of ' + said + ' has too little contrast');
  }
}
for (const text of document.querySelectorAll('h1, h2, h3, p, td, th, summary, figcaption'))
  if (contrast(getComputedStyle(text).color) < 4.5) fault(document.body, text.textContent + ' has too little contrast');
if (document.documentElement.scrollWidth > innerWidth + 1) fault(document.body, 'wider than the window');
const found = document.createElement('pre');
found.id = 'found';
found.textContent = JSON.stringify({ svgs: svgs.length, marks, paper, faults });
document.body.append(found);
";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Theme {
    Light,
    Dark,
}

/// What a browser says of a page.
fn look(browser: &Path, page: &str, name: &str, theme: Theme, width: u32) -> Value {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("{name}-{theme:?}-{width}.html"));
    let allowed = "default-src 'none'; script-src 'unsafe-inline'; ";
    let page = page.replace("default-src 'none'; ", allowed);
    let page = page.replace("</body>", &format!("<script>{LOOK}</script></body>"));
    std::fs::write(&file, page).unwrap();
    let profile = tempfile::tempdir_in(directory).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},2000"))
        .arg(match theme {
            Theme::Light => "--blink-settings=preferredColorScheme=1",
            Theme::Dark => "--blink-settings=preferredColorScheme=0",
        })
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let found = page.split("<pre id=\"found\">").nth(1);
    let found = found.unwrap_or_else(|| panic!("nothing was found in {}: {said}", file.display()));
    let found = found.split("</pre>").next().unwrap();
    let plain = found.replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&plain.replace("&amp;", "&")).unwrap()
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.iter().find_map(|name| {
        let places = directories.iter().map(|directory| directory.join(name));
        places.into_iter().find(|place| place.is_file())
    });
    if found.is_none() {
        assert_ne!(
            std::env::var("ODAFS_BROWSER").as_deref(),
            Ok("required"),
            "no Chromium is installed"
        );
        eprintln!("skipped: no Chromium is installed (apt-get install chromium)");
    }
    found
}

/// A page with all benches, and with what other benches may draw.
fn whole_page() -> String {
    let mut page = Page::titled("ODAFS: benchmarks");
    for report in fixture::reports() {
        draw(&mut page, &report).unwrap();
    }
    page.heading("Load");
    let reference = |name: &str, at, value| PublishedFigure {
        name: name.to_owned(),
        source: "paper 004, figure 3".to_owned(),
        hardware: "a LANai9.2 of 2003".to_owned(),
        at,
        value,
    };
    let line = |name: &str, first: f64| Line {
        series: Series::of(name),
        points: (0..=10)
            .map(|step| {
                let y = first * 1.2_f64.powi(step);
                Point {
                    x: f64::from(step) * 10.0,
                    y,
                    spread: Some((y * 0.9, y * 1.1)),
                }
            })
            .collect(),
    };
    let names = [
        "one-sided",
        "guarded",
        "rpc",
        "cache",
        "policy",
        "nfs",
        "mmap",
        "redis",
    ];
    page.lines(&[Lines {
        title: "Latency beside others".to_owned(),
        x: Axis::new(
            "Load of the server's processor",
            Unit::Percent,
            Scale::Linear,
        ),
        y: Axis::time("Latency of a read"),
        // All end at about the same place, so that their names have to give way.
        lines: names.iter().map(|name| line(name, 900.0)).collect(),
        references: vec![
            reference("RDMA Write (2003)", None, 30_000.0),
            reference("ORDMA (2003)", Some(50.0), 9_000.0),
        ],
    }]);
    let row = DotsRow::latency("one-sided", Series::of("one-sided"), 550.0, None, 911.0);
    page.dots(&Dots {
        references: vec![reference("RDMA Write (2003)", None, 30_000.0)],
        ..Dots::latencies("One row, and a published figure", vec![row])
    });
    page.html()
}

#[test]
fn every_mark_is_there_and_nothing_overlaps_or_is_cut() {
    let Some(browser) = browser() else { return };
    let page = whole_page();
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let plots = page.matches("<svg").count();
    let marks = page.matches("class='mark'").count();
    assert!(plots > 30 && marks > 400, "{plots} plots, {marks} marks");
    let mut papers = Vec::new();
    for (theme, width) in [
        (Theme::Light, 1280),
        (Theme::Dark, 1280),
        (Theme::Light, 600),
    ] {
        let found = look(&browser, &page, "report", theme, width);
        let faults = found["faults"].as_array().unwrap();
        assert!(faults.is_empty(), "{theme:?} {width}: {faults:#?}");
        assert_eq!(
            (&found["svgs"], &found["marks"]),
            (&plots.into(), &marks.into())
        );
        papers.push(found["paper"].clone());
    }
    assert_ne!(papers[0], papers[1], "there is one theme only");
}

/// That the look would find what it looks for.
#[test]
fn a_spoiled_page_has_faults() {
    let Some(browser) = browser() else { return };
    let page = Page::titled("Spoiled").html().replace(
        "</body>",
        "<figure data-values='3'><svg viewBox='0 0 100 100' width='100' height='100' aria-label='bad'>\
         <text x='20' y='50'>one</text><text x='25' y='52'>two</text><text x='90' y='20'>cut away</text>\
         <text x='5' y='90' style='fill:#eee'>pale</text>\
         <g class='mark'><title>a 1</title><rect x='40' y='80' width='0' height='0'/></g>\
         <g class='mark'><title>b 2</title><circle cx='100' cy='60' r='4'/></g></svg></figure></body>",
    );
    let found = look(&browser, &page, "spoiled", Theme::Light, 1280);
    let faults = found["faults"].to_string();
    for expected in [
        "2 marks for 3 values",
        "«two» lies over «one»",
        "«cut away» is cut",
        "«pale» has too little contrast",
        "the mark of a 1 is not seen",
        "the mark of b 2 is cut",
    ] {
        assert!(faults.contains(expected), "{expected}: {faults}");
    }
}

#[test]
fn plots_by_themselves_are_whole() {
    assert!(readme_plot(&[]).is_err() && load_plot(&[]).is_err());
    let reports = fixture::reports();
    // A row for each fabric and route but floors, over any kind of memory; six routes at five loads.
    let plots = [
        ("latency", readme_plot(&reports).unwrap(), 9),
        ("load", load_plot(&reports).unwrap(), 6 * 5),
    ];
    for (name, svg, expected) in &plots {
        let marks = svg.matches("class='mark'").count();
        assert_eq!(marks, *expected, "{name}");
    }
    let Some(browser) = browser() else { return };
    for (name, svg, marks) in plots {
        let page = Page::titled("Plot").html().replace(
            "</body>",
            &format!("<figure data-values='{marks}'>{svg}</figure></body>"),
        );
        for theme in [Theme::Light, Theme::Dark] {
            let found = look(&browser, &page, &format!("plot-{name}"), theme, 1280);
            let faults = found["faults"].as_array().unwrap();
            assert!(faults.is_empty(), "{name} {theme:?}: {faults:#?}");
        }
    }
}
