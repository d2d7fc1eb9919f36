/* Products of the middle axis of x[outer][n][inner]. */
void k_prod_i64(long outer, long n, long inner, const int64_t *x, int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = 1;
        for (long i = 0; i < n; i++)
            for (long j = 0; j < inner; j++)
                out[j] = (int64_t)((uint64_t)out[j] * (uint64_t)x[i * inner + j]);
    }
}
