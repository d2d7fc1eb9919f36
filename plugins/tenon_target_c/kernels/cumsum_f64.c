/* Running sums along the middle axis of x[outer][n][inner]. */
void k_cumsum_f64(long outer, long n, long inner, const double *x, double *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += n * inner) {
        for (long j = 0; j < inner; j++)
            out[j] = x[j];
        for (long i = inner; i < n * inner; i++)
            out[i] = out[i - inner] + x[i];
    }
}
