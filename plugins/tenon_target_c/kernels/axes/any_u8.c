/* Whether any along the middle axis of x[outer][n][inner] is non-zero. */
void k_any_u8(long outer, long n, long inner, const uint8_t *x, uint8_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = 0;
        for (long i = 0; i < n; i++)
            for (long j = 0; j < inner; j++)
                out[j] |= x[i * inner + j] != 0;
    }
}
