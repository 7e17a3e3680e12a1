//! Which cases a command asks for, by words: families, ops, dtypes, shapes.

use crate::case::Case;

/// The words that name a case, in the order of its name.
fn words(case: &Case) -> [&str; 4] {
    [&case.spec.family, &case.spec.op, &case.spec.dtype, &case.spec.shape]
}

/// The cases that fit: of words of one kind any, of each kind that is given one. A word may be a whole name,
/// `matmul/bmm/f32/32x128x128x128`.
///
/// # Errors
/// A word that names nothing, with what there is; words that fit no case together.
pub fn select(cases: Vec<Case>, filter: &[String]) -> Result<Vec<Case>, String> {
    // A family and an op of the same name are one kind: `matmul` and `unary` together are both.
    let mut kinds: [Vec<&str>; 3] = Default::default();
    let (names, mut whole): (Vec<&String>, Vec<&str>) = (filter.iter().collect(), Vec::new());
    for word in names {
        let is = |place: usize| cases.iter().any(|case| words(case)[place] == word);
        match word {
            _ if is(0) || is(1) => kinds[0].push(word),
            _ if is(2) => kinds[1].push(word),
            _ if is(3) => kinds[2].push(word),
            _ if cases.iter().any(|case| case.spec.name() == *word) => whole.push(word),
            _ => return Err(unknown(&cases, word)),
        }
    }
    let fits = |case: &Case| {
        let [family, op, dtype, shape] = words(case);
        let any = |kind: &[&str], names: &[&str]| kind.is_empty() || kind.iter().any(|word| names.contains(word));
        let parts = any(&kinds[0], &[family, op]) && any(&kinds[1], &[dtype]) && any(&kinds[2], &[shape]);
        let given = kinds.iter().any(|kind| !kind.is_empty()) || whole.is_empty();
        (given && parts) || whole.contains(&case.spec.name().as_str())
    };
    let chosen: Vec<Case> = cases.into_iter().filter(fits).collect();
    if chosen.is_empty() {
        return Err(format!("no case is all of {}; `list` prints every case", filter.join(" ")));
    }
    Ok(chosen)
}

fn unknown(cases: &[Case], word: &str) -> String {
    let names = |place: usize| {
        let mut names: Vec<&str> = cases.iter().map(|case| words(case)[place]).collect();
        names.sort_unstable();
        names.dedup();
        names.join(" ")
    };
    format!(
        "no family, op, dtype or shape is called `{word}`\nfamilies: {}\nops: {}\ndtypes: {}\nshapes: {}",
        names(0),
        names(1),
        names(2),
        names(3)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn chosen(filter: &[&str]) -> Result<Vec<String>, String> {
        let filter: Vec<String> = filter.iter().map(|&word| word.to_owned()).collect();
        Ok(select(cases::all(), &filter)?.iter().map(|case| case.spec.name()).collect())
    }

    #[test]
    fn words_of_one_kind_add_up_and_kinds_narrow() {
        let all = chosen(&[]).unwrap();
        assert_eq!(all.len(), cases::all().len());
        let products = chosen(&["matmul", "f32"]).unwrap();
        assert!(products.iter().all(|name| name.starts_with("matmul/") && name.contains("/f32/")), "{products:?}");
        let both = chosen(&["exp", "sum", "f32", "64K"]).unwrap();
        assert_eq!(both, ["unary/exp/f32/64K", "reduce/sum/f32/64K"]);
    }

    #[test]
    fn a_whole_name_is_one_case() {
        assert_eq!(chosen(&["copy/cat/bf16/32K"]).unwrap(), ["copy/cat/bf16/32K"]);
    }

    #[test]
    fn an_unknown_word_is_told_what_exists() {
        let error = chosen(&["matmull"]).unwrap_err();
        assert!(error.contains("`matmull`") && error.contains("families: ") && error.contains(" matmul "), "{error}");
        let error = chosen(&["sort", "bool"]).unwrap_err();
        assert!(error.contains("all of sort bool"), "{error}");
    }
}
