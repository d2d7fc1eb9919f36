/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* out[o][i][j] = x[o][index[o][i][j]][j]: elements along the middle axis of x[outer][n][inner], for an index of
   `count` elements. Returns 1 if an index is out of range. */
int k_gather_$(long outer, long n, long inner, long count, const T *x, const int64_t *index, T *out)
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
