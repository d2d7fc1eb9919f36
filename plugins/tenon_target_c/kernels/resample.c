/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Weighted sums along the middle axis of x[outer][n][inner]: row r of the `rows` results adds the elements
   `places` with `weights` from starts[r] to starts[r + 1]. */
void k_resample_$(long outer, long n, long inner, long rows, const T *x, const int32_t *starts,
                  const int32_t *places, const T *weights, T *out)
{
    for (long o = 0; o < outer; o++, x += n * inner)
        for (long r = 0; r < rows; r++, out += inner) {
            for (long j = 0; j < inner; j++)
                out[j] = 0;
            for (int32_t e = starts[r]; e < starts[r + 1]; e++)
                for (long j = 0; j < inner; j++)
                    out[j] = k_add_$(out[j], k_multiply_$(weights[e], x[places[e] * inner + j]));
        }
}
