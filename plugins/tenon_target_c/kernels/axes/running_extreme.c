/* For T = f32 f64 i32 i64. */
/* The index of the cumulative maximum (minimum) along the middle axis of x[outer][n][inner], the last of equal
   ones; NaN counts as the maximum (minimum). */
void k_running_extreme_$(long outer, long n, long inner, const T *x, int largest, int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += n * inner)
        for (long j = 0; j < inner; j++) {
            long best = 0;
            for (long i = 0; i < n; i++) {
                const T a = x[i * inner + j], b = x[best * inner + j];
                if (k_nan_$(a) || (!k_nan_$(b) && (largest ? a >= b : a <= b)))
                    best = i;
                out[i * inner + j] = best;
            }
        }
}
