//! Samples of several ways to do the same, which take turns.
//!
//! Other load, and the caches as one way leaves them, then affect all ways alike.

use super::EvaluateError;

/// Takes so many samples of each of `N` ways, by way and round.
///
/// The first round warms up and is not counted. The ways take turns at going first.
///
/// # Errors
/// That of a sample.
pub(super) fn in_turns<T, const N: usize>(
    rounds: usize,
    mut sample: impl FnMut(usize) -> Result<T, EvaluateError>,
) -> Result<[Vec<T>; N], EvaluateError> {
    let mut samples = [const { Vec::new() }; N];
    for round in 0..=rounds {
        for at in 0..N {
            let way = (at + round) % N;
            let taken = sample(way)?;
            if round > 0 {
                samples[way].push(taken);
            }
        }
    }
    Ok(samples)
}

/// The samples of each figure, of rounds with several figures each.
pub(super) fn by_figure<const N: usize>(rounds: &[[f64; N]]) -> [Vec<f64>; N] {
    std::array::from_fn(|figure| rounds.iter().map(|figures| figures[figure]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_goes_first_in_its_turn_and_the_first_round_is_not_counted() {
        let mut taken = Vec::new();
        let samples: [Vec<usize>; 2] = in_turns(2, |way| {
            taken.push(way);
            Ok(taken.len())
        })
        .expect("samples");
        assert_eq!(taken, [0, 1, 1, 0, 0, 1]);
        assert_eq!(samples, [[4, 5], [3, 6]]);
        assert_eq!(by_figure(&[[1.0, 2.0], [3.0, 4.0]]), [[1.0, 3.0], [2.0, 4.0]]);
        let failed = in_turns::<(), 1>(1, |_| Err(EvaluateError::Machine("m".to_owned())));
        assert!(failed.is_err());
    }
}
