//! The report as JUnit's XML: a suite for each backend, a test case for each cell, law and recorded case.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{CellRecord, Document, LawRecord, Mark, RecordedResult};

impl Document {
    /// The text of `junit.xml`. Loose, indeterminate and vacuous cells succeed, with a remark.
    ///
    /// # Errors
    /// When the XML cannot be written.
    pub fn to_junit(&self) -> Result<String, String> {
        let mut report = Report::new("conformance");
        report.set_time(duration(self.seconds));
        for column in &self.backends {
            let mut suite = TestSuite::new(&column.name);
            suite.add_property(("declared arithmetic", column.declared.as_str()));
            suite.add_property(("seed", self.seed.as_str()));
            suite.add_test_cases(self.cells.iter().filter(|cell| cell.backend == column.name).map(cell_case));
            suite.add_test_cases(self.laws.iter().filter(|law| law.backend == column.name).map(law_case));
            suite.add_test_cases(self.recorded.iter().filter(|case| case.backend == column.name).map(recorded_case));
            report.add_test_suite(suite);
        }
        report.to_string().map_err(|error| error.to_string())
    }
}

fn cell_case(cell: &CellRecord) -> TestCase {
    let status = match (cell.verdict, &cell.failure) {
        (Mark::Fail, failure) => {
            let (reason, replay) = failure.as_ref().map_or(("", None), |one| (&one.reason, one.replay.as_ref()));
            failed(reason, &replay.map_or_else(|| reason.to_owned(), |replay| format!("{replay:#}")))
        }
        (Mark::Unsupported, _) => skipped("the backend lacks the op"),
        _ => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(format!("{} {}", cell.op, cell.dtype), status);
    case.set_classname(format!("{}.{}", cell.backend, cell.family));
    case.set_time(duration(cell.seconds));
    let remarks = [
        (cell.verdict == Mark::Loose).then(|| format!("{} elements have an unlikely error", cell.loose)),
        (cell.verdict == Mark::Indeterminate).then(|| "of most elements nothing was known".to_owned()),
        cell.vacuous.then(|| "no error comes near its bound".to_owned()),
    ];
    let remarks: Vec<_> = remarks.into_iter().flatten().collect();
    if !remarks.is_empty() {
        case.set_system_out(remarks.join("\n"));
    }
    case
}

fn law_case(law: &LawRecord) -> TestCase {
    let status = law.broken.as_ref().map_or_else(TestCaseStatus::success, |found| failed(found, found));
    let mut case = TestCase::new(&law.law, status);
    case.set_classname(format!("{}.laws", law.backend));
    case
}

fn recorded_case(case: &RecordedResult) -> TestCase {
    let reason = case.reason.as_deref();
    let status = match case.verdict {
        Mark::Fail => failed(reason.unwrap_or_default(), reason.unwrap_or_default()),
        Mark::Unsupported => skipped(reason.unwrap_or("the backend lacks the op")),
        _ => TestCaseStatus::success(),
    };
    let mut test = TestCase::new(format!("{}: {} ({})", case.op, case.name, case.source), status);
    test.set_classname(format!("{}.recorded", case.backend));
    test
}

fn skipped(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message);
    status
}

fn failed(message: &str, description: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message).set_description(description);
    status
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
