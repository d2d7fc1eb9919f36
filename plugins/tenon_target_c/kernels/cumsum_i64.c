/* Running sums along the middle axis of x[outer][n][inner]. */
void k_cumsum_i64(long outer, long n, long inner, const int64_t *x, int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += n * inner) {
        for (long j = 0; j < inner; j++)
            out[j] = x[j];
        for (long i = inner; i < n * inner; i++)
            out[i] = (int64_t)((uint64_t)out[i - inner] + (uint64_t)x[i]);
    }
}
