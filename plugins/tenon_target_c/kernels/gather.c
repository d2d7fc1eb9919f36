/* out[o][i][j] = x[o][index[o][i][j]][j]: elements along the middle axis of x[outer][n][inner], for an index of
   `count` places. Returns 1 if an index is outside. */
int k_gather_f32(long outer, long n, long inner, long count, const float *x, const int64_t *index, float *out)
{
    for (long o = 0; o < outer; o++, x += n * inner)
        for (long i = 0; i < count; i++)
            for (long j = 0; j < inner; j++, index++) {
                if (*index < 0 || *index >= n)
                    return 1;
                *out++ = x[*index * inner + j];
            }
    return 0;
}

int k_gather_i64(long outer, long n, long inner, long count, const int64_t *x, const int64_t *index,
                 int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner)
        for (long i = 0; i < count; i++)
            for (long j = 0; j < inner; j++, index++) {
                if (*index < 0 || *index >= n)
                    return 1;
                *out++ = x[*index * inner + j];
            }
    return 0;
}
