use super::*;
use serde_json::json;

#[path = "../../tests/fixture/mod.rs"]
mod fixture;

fn page_of(report: &Value) -> String {
    let mut page = Page::titled("Report");
    draw(&mut page, report).unwrap();
    page.html()
}

/// Each plot's number of values, and of marks.
fn values_and_marks(page: &str) -> Vec<(usize, usize)> {
    let figures = page.split("<figure data-values='").skip(1);
    let number = |text: &str| text.split('\'').next().unwrap().parse().unwrap();
    let both = figures.map(|figure| {
        let body = figure.split("</figure>").next().unwrap();
        (number(figure), body.matches("class='mark'").count())
    });
    both.collect()
}

fn of_case(rows: &[Value], name: &str) -> usize {
    rows.iter().filter(|row| row["case"] == name).count()
}

#[test]
fn every_plot_says_whether_it_is_real_or_simulated() {
    for report in &fixture::reports() {
        let page = page_of(report);
        // Behind the plots the page keeps the report itself.
        let page = page.split(KEPT).next().unwrap();
        let bench = &report["bench"];
        let is_simulated = bench == "simulate";
        assert_eq!(page.contains("AMD EPYC"), !is_simulated, "{bench}");
        for figure in page.split("<figure ").skip(1) {
            let figure = figure.split("</figure>").next().unwrap();
            let says = |kind: &str| figure.contains(&format!("<p class='kind'>{kind}"));
            assert_eq!(
                (says("Simulated"), says("Real")),
                (is_simulated, !is_simulated),
                "{bench}"
            );
            let caption = figure.contains("<figcaption>Simulated");
            assert_eq!(caption, is_simulated, "{bench}");
        }
    }
}

#[test]
fn every_value_has_its_mark_in_every_plot() {
    for report in &fixture::reports() {
        let rows = report["rows"].as_array().unwrap();
        let ratios = report["ratios"].as_array().map_or(0, Vec::len);
        let expected = match report["bench"].as_str().unwrap() {
            // And two published figures beside reads with four ahead.
            "throughput" => 3 * rows.len() + 2,
            // Two rates of transactions of paper 002.
            "metadata" => rows.len() + 2,
            "designs" => 3 * rows.len(),
            "credits" => 4 * rows.len(),
            // A rate, and three parts; one strategy invalidates nothing. Four published figures.
            "registration" => 4 * rows.len() - 4 + 4,
            // Three terms of paper 004.
            "breakdown" => rows.len() + 3,
            // Along clients three figures, elsewhere one.
            "simulate" => rows.len() + 2 * of_case(rows, "clients"),
            "revocation" => 5 * rows.len(),
            // Three calls in three states; syncs are not flooded elsewhere.
            "fairness" => 9 * rows.len() - 3,
            // Five figures; one client alone says nothing of a further one.
            "scale" => 5 * rows.len() - 2 * 6,
            // A rate of all, and three latencies of each kind; at either end there is one kind.
            "mixed" => rows.len() + 3 * (2 * rows.len() - 2 * 3),
            "load" => 2 * rows.len(),
            // A rate, a latency, and memory and descriptors of both sides.
            "soak" => 6 * rows.len(),
            "other" => 0,
            _ => rows.len() + ratios,
        };
        let page = page_of(report);
        let found = values_and_marks(&page);
        for (values, marks) in &found {
            assert_eq!(values, marks, "{}", report["bench"]);
        }
        let marks: usize = found.iter().map(|(_, marks)| marks).sum();
        assert_eq!(marks, expected, "{}", report["bench"]);
        assert!(!page.contains("NaN") && !page.contains("inf'") && !page.contains("://"));
    }
}

#[test]
fn no_text_lies_over_another_as_far_as_widths_tell() {
    let row = |label: &str, p50: f64| {
        DotsRow::latency(label, Series::of("rpc"), p50, None, p50 * 1e4).in_group("A group")
    };
    let rows = vec![
        row("RPC", 300.0),
        row("RPC by a very long name, and longer", 60e6),
    ];
    let dots = dots::draw(&Dots::latencies("Latencies", rows));
    assert_eq!(dots.svg.faults(), Vec::<String>::new());
    let line = |name: &str, y: f64| Line {
        series: Series::of(name),
        points: vec![
            Point {
                x: 512.0,
                y,
                spread: None,
            },
            Point {
                x: 1e6,
                y: 2000.0,
                spread: None,
            },
        ],
    };
    let lines = lines::draw(&Lines {
        title: String::new(),
        x: Axis::new("Length of a record", Unit::Bytes, Scale::Log),
        y: Axis::new("Throughput (MiB/s)", Unit::Number, Scale::Auto),
        lines: ["nfs", "shm", "tcp", "verbs"]
            .map(|name| line(name, 3.0))
            .to_vec(),
        references: Vec::new(),
    });
    assert_eq!(lines.svg.faults(), Vec::<String>::new());
    let mut spoiled = svg::Svg::new(50.0, 20.0);
    spoiled.text((1.0, 15.0), svg::Anchor::Start, "", "one");
    spoiled.text((10.0, 15.0), svg::Anchor::Start, "", "over another");
    assert_eq!(spoiled.faults().len(), 2);
}

#[test]
fn many_rows_are_kept_without_a_table() {
    let of = |rows: u32| {
        page_of(
            &json!({"bench": "other", "rows": (0..rows).map(|n| json!({"n": n})).collect::<Vec<_>>()}),
        )
    };
    assert!(of(200).contains("All 200 rows") && of(200).contains("<td>199"));
    let page = of(201);
    assert!(page.contains("keeps all 201 rows") && !page.contains("<td>"));
    assert_eq!(reports_in(&page).unwrap()[0]["rows"][200]["n"], 200);
}

#[test]
fn what_a_page_is_given_it_escapes_and_gives_back() {
    let reports = fixture::reports();
    let mut page = Page::titled("<report>");
    for report in &reports {
        draw(&mut page, report).unwrap();
    }
    let html = page.html();
    assert!(html.contains("&lt;report&gt;") && !html.contains("<report>"));
    assert!(html.contains("a&lt;b") && !html.contains("a<b"));
    assert!(html.len() < 2_000_000);
    let packed: Vec<Value> = reports.iter().map(kept::pack).collect();
    let kept = reports_in(&html).unwrap();
    assert_eq!(kept.len(), reports.len());
    assert_eq!(kept.iter().map(kept::pack).collect::<Vec<_>>(), packed);
    assert_eq!(kept[0]["rows"][3]["route"], reports[0]["rows"][3]["route"]);
    assert!(reports_in("<html>").is_err());
    assert_eq!(reports_in("{\"rows\": []}").unwrap().len(), 1);
}

#[test]
fn what_could_not_be_measured_is_on_the_page() {
    let machine = json!({});
    let row = json!({ "fabric": "shm", "route": "mmap", "p50_ns": 5, "size_bytes": 64 });
    let page = page_of(&json!({
        "machine": machine, "bench": "policy", "rows": [], "skipped": ["shm, uniform: no server"],
    }));
    let page = page.split(KEPT).next().unwrap();
    assert!(
        page.contains("<p class='warning'>A case could not be measured: shm, uniform: no server.")
    );
    let page = page_of(&json!({
        "machine": machine, "rows": [row], "left_out": ["one-sided / mmap, 64 B: other pages"],
    }));
    let page = page.split(KEPT).next().unwrap();
    assert!(page.contains("<p class='warning'>Left out: one-sided / mmap, 64 B: other pages."));
}

#[test]
fn a_row_of_other_pages_says_so() {
    let row = |route, backing: u64| {
        json!({
            "fabric": "shm", "route": route, "p50_ns": 5, "size_bytes": 64, "depth": 1,
            "wait": "spin", "pattern": "random", "backing_bytes": backing,
        })
    };
    let page = |rows: &[Value]| {
        let page = page_of(&json!({ "machine": {}, "rows": rows }));
        page.split(KEPT).next().unwrap().to_owned()
    };
    let large = 2 << 20;
    let marked = page(&[row("cache", 4096), row("one-sided", large)]);
    assert!(
        marked.contains("cache of the client, pages of 4 KiB"),
        "{marked}"
    );
    assert!(!marked.contains("one-sided, pages of"));
    let alike = page(&[row("cache", 4096), row("one-sided", 4096)]);
    assert!(!alike.contains("pages of"));
}
