/* For T = f32 f64. */
/* Cumulative log-sum-exp along the middle axis of x[outer][n][inner]. */
void k_logcumsumexp_$(long outer, long n, long inner, const T *x, T *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += n * inner) {
        for (long j = 0; j < inner && n > 0; j++)
            out[j] = x[j];
        for (long i = inner; i < n * inner; i++) {
            const double a = out[i - inner], b = x[i];
            const double high = a > b ? a : b, low = a > b ? b : a;
            out[i] = (T)(a == b ? a + 0.693147180559945309 : high + log1p(exp(low - high)));
        }
    }
}
