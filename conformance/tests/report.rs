//! Reports: the JSON is the whole of it, and every other form shows what it holds.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

use std::sync::{Arc, LazyLock};

use congruent_backend_api::erase::{AnyBackend, Erase};
use congruent_backend_cpu::Cpu;
use congruent_conformance::faults::{Faulty, faults};
use congruent_conformance::ops::rows;
use congruent_conformance::report::diff::{Diff, Kind};
use congruent_conformance::report::{Document, FaultRecord, LawRecord, Mark, RecordedResult, support};
use congruent_conformance::suite::{Candidate, Profile, check, selected};
use quick_junit::TestCaseStatus;

/// A correct and a wrong backend on a few rows, with a broken law, a missed fault and a missing op.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let fault = faults().find(|fault| fault.name == "the last element repeats the one before").unwrap();
    let cpu = || Arc::new(Erase(Cpu::new())) as Arc<AnyBackend>;
    let candidates = [
        Candidate::new("cpu", move || Ok(cpu())),
        Candidate::new("wrong:0", move || Ok(Arc::new(Erase(Faulty::new(cpu(), fault))) as Arc<AnyBackend>)),
    ];
    let ops = ["exp", "floor", "add", "lt", "sum", "argmax", "matmul", "cast_f16", "logical_and"].map(str::to_owned);
    let rows: Vec<_> = rows().filter(|&row| selected(row, &ops, &[])).collect();
    let profile = Profile { cases: 24, limit: 256, ..Profile::default() };
    let mut document = check(&candidates, &rows, &profile, |_| {}).unwrap().document();
    let law = |backend: &str, broken: Option<&str>| LawRecord {
        backend: backend.to_owned(),
        law: "(AB)ᵀ = BᵀAᵀ".to_owned(),
        broken: broken.map(str::to_owned),
    };
    document.laws = vec![law("cpu", None), law("wrong:0", Some("f32: element 3 is 1 < 2 & \u{1}"))];
    let recorded = |name: &str, verdict, reason: Option<&str>| RecordedResult {
        backend: "wrong:0".to_owned(),
        name: name.to_owned(),
        op: "sum".to_owned(),
        source: "library #1".to_owned(),
        verdict,
        reason: reason.map(str::to_owned),
    };
    document.recorded = vec![
        recorded("a row of <one>", Mark::Fail, Some("element [0] is 1")),
        recorded("another", Mark::Unsupported, None),
    ];
    document.faults = vec![FaultRecord {
        number: Some(7),
        fault: "the last element is lost".to_owned(),
        caught: false,
        cases: None,
        rows_caught: 0,
        rows: 12,
        laws: Vec::new(),
    }];
    let lacking = document.cells.iter_mut().find(|cell| cell.backend == "cpu" && cell.op == "argmax").unwrap();
    lacking.verdict = Mark::Unsupported;
    document
});

#[test]
fn json_holds_the_whole_report() {
    let text = DOCUMENT.to_json().unwrap();
    assert_eq!(Document::from_json(&text).unwrap(), *DOCUMENT);
    assert!(text.contains("\"congruent_report\": 1") && DOCUMENT.failures().count() > 3);
    let error = Document::from_json("{\"congruent_report\": 2}").unwrap_err();
    assert_eq!(error, "congruent_report: version 2; this program reads version 1");
    assert!(Document::from_json("{}").unwrap_err().contains("no report"));
    assert!(Document::from_json("{\"congruent_report\": 1}").unwrap_err().contains("missing field"));
}

#[test]
fn junit_has_a_test_case_for_each_cell_and_law() {
    let xml = DOCUMENT.to_junit().unwrap();
    let report = quick_junit::Report::deserialize_from_str(&xml).unwrap();
    let cases = || report.test_suites.iter().flat_map(|suite| &suite.test_cases);
    assert_eq!(cases().count(), DOCUMENT.cells.len() + DOCUMENT.laws.len() + DOCUMENT.recorded.len());
    let failed = cases().filter(|case| matches!(case.status, TestCaseStatus::NonSuccess { .. })).count();
    assert_eq!(failed, DOCUMENT.failures().count() + 2);
    assert_eq!(cases().filter(|case| matches!(case.status, TestCaseStatus::Skipped { .. })).count(), 2);
}

#[test]
fn the_page_shows_every_failure_and_needs_nothing_else() {
    let page = DOCUMENT.to_html();
    // To be looked at in a browser.
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), &page).unwrap();
    for cell in DOCUMENT.failures() {
        let name = cell.name();
        assert!(page.contains(&format!("id=\"{}\"", name.replace([' ', ':'], "-"))), "{name}");
        let failure = cell.failure.as_ref().unwrap();
        assert!(failure.resembles.iter().any(|fault| fault == "the last element repeats the one before"), "{name}");
        assert!(failure.wrong > 0 && page.contains("looks like the seeded fault"), "{name}");
        assert!(page.contains(&format!("<h3>{name}</h3>")) && page.contains(&cell.replay_file()), "{name}");
    }
    for outside in ["http:", "https:", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(
        page.contains("a row of &lt;one&gt;")
            && page.contains("1 &lt; 2 &amp;")
            && page.contains("NOT CAUGHT")
            && page.contains("not tested")
    );
}

#[test]
fn a_comparison_finds_what_became_worse() {
    let before = &*DOCUMENT;
    assert!(Diff::new(before, before).changes.is_empty());
    let changed = |change: fn(&mut Document)| {
        let mut after = before.clone();
        change(&mut after);
        let diff = Diff::new(before, &after);
        (diff.is_worse(), diff.changes)
    };
    let (worse, changes) = changed(|after| after.cells[0].verdict = Mark::Fail);
    assert!(worse && changes[0].kind == Kind::Verdict(Mark::Pass, Mark::Fail), "{changes:?}");
    let (worse, changes) = changed(|after| after.cells[0].worst_error_over_bound += 0.02);
    assert!(worse == (before.cells[0].worst_error_over_bound < 0.2) && changes.len() == usize::from(worse));
    let (worse, changes) = changed(|after| after.cells[0].worst_error_over_bound += 0.009);
    assert!(!worse && changes.is_empty());
    let (worse, changes) = changed(|after| drop(after.cells.remove(0)));
    assert!(
        worse
            && changes
                == [congruent_conformance::report::diff::Change {
                    name: before.cells[0].name(),
                    kind: Kind::Removed(before.cells[0].verdict),
                }]
    );
    let (worse, changes) = changed(|after| after.laws[0].broken = Some("broken".to_owned()));
    assert!(
        worse && changes[0].to_string().starts_with("worse  law “(AB)ᵀ = BᵀAᵀ” on cpu: pass → fail"),
        "{changes:?}"
    );
    let (worse, changes) = changed(|after| after.laws[1].broken = None);
    assert!(!worse && changes.len() == 1);
    let mut fewer = before.clone();
    fewer.backends.pop();
    fewer.cells.retain(|cell| cell.backend == "cpu");
    let diff = Diff::new(before, &fewer);
    assert!(!diff.is_worse() && diff.notes == ["only the first report has wrong:0"], "{diff:?}");
}

#[test]
fn support_tables_replace_their_block() {
    assert!(support::tables(&DOCUMENT).unwrap_err().contains("without --op and --dtype"));
    let mut document = DOCUMENT.clone();
    document.backends.remove(0);
    let template = document.cells[0].clone();
    let cell = |(op, dtype): congruent_conformance::ops::Row| {
        let mut cell = template.clone();
        (cell.backend, cell.op, cell.verdict) = ("wrong:0".to_owned(), op.name().to_owned(), Mark::Pass);
        (cell.family, cell.dtype) = (op.family().to_owned(), dtype.name().to_owned());
        cell
    };
    document.cells = rows().map(cell).collect();
    document.cells[0].verdict = Mark::Unsupported;
    let tables = support::tables(&document).unwrap();
    let [(block, table)] = &tables[..] else { panic!("{tables:?}") };
    assert!(block == "wrong" && table.starts_with("| ops | f64 | f32 |") && table.contains("✓ "), "{table}");
    assert!(table.contains(" of "), "{table}");
    let readme = "a\n<!-- support wrong -->\nold\n<!-- /support wrong -->\nb";
    let new = support::place(readme, block, table).unwrap();
    assert_eq!(new, format!("a\n<!-- support wrong -->\n\n{table}\n<!-- /support wrong -->\nb"));
    assert_eq!(support::place(&new, block, table).unwrap(), new);
    assert!(support::place("a", block, table).unwrap_err().contains("add the lines"));
}
