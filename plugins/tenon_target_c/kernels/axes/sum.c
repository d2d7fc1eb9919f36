/* For T = f64 i32 i64. */
/* Sums along the middle axis of x[outer][n][inner]. */
void k_sum_$(long outer, long n, long inner, const T *x, T *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = 0;
        for (long i = 0; i < n; i++)
            for (long j = 0; j < inner; j++)
                out[j] = k_add_$(out[j], x[i * inner + j]);
    }
}
