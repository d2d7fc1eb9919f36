/* Products of the middle axis of x[outer][n][inner]. */
void k_prod_i32(long outer, long n, long inner, const int32_t *x, int32_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = 1;
        for (long i = 0; i < n; i++)
            for (long j = 0; j < inner; j++)
                out[j] = (int32_t)((uint32_t)out[j] * (uint32_t)x[i * inner + j]);
    }
}
