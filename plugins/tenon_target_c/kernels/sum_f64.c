/* Sums of the middle axis of x[outer][n][inner]. */
void k_sum_f64(long outer, long n, long inner, const double *x, double *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = 0;
        for (long i = 0; i < n; i++)
            for (long j = 0; j < inner; j++)
                out[j] = out[j] + x[i * inner + j];
    }
}
