//! The confidence interval of a share.

/// The 97.5 % quantile of the standard normal distribution, for an interval of 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// The Wilson score interval of 95 % for the share of `hits` in `trials`, from 0 to 1.
///
/// The share of a small sample is not normally distributed near 0 and 1. This interval covers it
/// there too (Wilson 1927; Brown, Cai and DasGupta 2001).
pub(crate) fn wilson(hits: usize, trials: usize) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let n = trials as f64;
    let share = hits as f64 / n;
    let scale = 1.0 + Z * Z / n;
    let centre = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_known_values_and_its_ends_solve_the_score_equation() {
        for (hits, trials, low, high) in [
            (0, 10, 0.0, 0.277_53),
            (5, 10, 0.236_59, 0.763_41),
            (90, 100, 0.825_63, 0.944_77),
            (10, 10, 0.722_47, 1.0),
        ] {
            let (found_low, found_high) = wilson(hits, trials);
            assert!((found_low - low).abs() < 1e-5, "{hits} of {trials}: {found_low}");
            assert!((found_high - high).abs() < 1e-5, "{hits} of {trials}: {found_high}");
            let share = f64::from(hits as u32) / f64::from(trials as u32);
            for end in [found_low, found_high] {
                let variance = Z * Z * end * (1.0 - end) / f64::from(trials as u32);
                assert!(((share - end).powi(2) - variance).abs() < 1e-12, "{hits} of {trials}: {end}");
            }
        }
        assert_eq!(wilson(0, 0), (0.0, 1.0), "no trial says nothing");
    }
}
