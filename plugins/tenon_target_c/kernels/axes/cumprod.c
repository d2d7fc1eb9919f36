/* For T = f32 f64 i64. */
/* Cumulative products along the middle axis of x[outer][n][inner]. */
void k_cumprod_$(long outer, long n, long inner, const T *x, T *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += n * inner) {
        for (long j = 0; j < inner && n > 0; j++)
            out[j] = x[j];
        for (long i = inner; i < n * inner; i++)
            out[i] = k_multiply_$(out[i - inner], x[i]);
    }
}
