/* Smallest elements of the middle axis of x[outer][n][inner]. */
void k_amin_i64(long outer, long n, long inner, const int64_t *x, int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = x[j];
        for (long i = 1; i < n; i++)
            for (long j = 0; j < inner; j++)
                if (x[i * inner + j] < out[j])
                    out[j] = x[i * inner + j];
    }
}
