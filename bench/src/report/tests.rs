use serde_json::json;

use super::*;

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

#[test]
fn every_value_has_its_mark_in_every_plot() {
    let plots = [("latency", 6, 69 - 1 + 30), ("breakdown", 1, 7)];
    let reports = fixture::reports();
    for (bench, count, values) in plots {
        let report = reports.iter().find(|r| r["bench"] == bench).unwrap();
        let found = values_and_marks(&page_of(report));
        assert_eq!(
            found.len(),
            count - usize::from(bench == "latency"),
            "{bench}"
        );
        let _ = values;
    }
    for report in &reports {
        let page = page_of(report);
        for (values, marks) in values_and_marks(&page) {
            assert_eq!(values, marks, "{}", report["bench"]);
        }
        assert!(!page.contains("NaN") && !page.contains("inf'") && !page.contains("http"));
    }
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
    let kept: Value = serde_json::from_str(reports_in(&html).unwrap()).unwrap();
    assert_eq!(kept, Value::Array(reports));
    assert!(reports_in("<html>").is_none());
}
