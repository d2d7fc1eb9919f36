/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Bags of rows: bag b has the rows x[offsets[b]] to x[offsets[b + 1]], the last ends at row `end`. Both return 1
   unless the offsets begin with 0, do not decrease and do not pass `end`. */
static int k_offsets_fit_$(long bags, const int64_t *offsets, long end)
{
    for (long b = 0; b < bags; b++)
        if ((b == 0 && offsets[b] != 0) || (b > 0 && offsets[b] < offsets[b - 1]) || offsets[b] > end)
            return 0;
    return 1;
}

int k_segment_sum_$(long bags, long end, long n, const T *x, const int64_t *offsets, T *out)
{
    if (!k_offsets_fit_$(bags, offsets, end))
        return 1;
    for (long b = 0; b < bags; b++, out += n) {
        const int64_t last = b + 1 < bags ? offsets[b + 1] : end;
        for (long j = 0; j < n; j++)
            out[j] = 0;
        for (int64_t i = offsets[b]; i < last; i++)
            for (long j = 0; j < n; j++)
                out[j] = k_add_$(out[j], x[i * n + j]);
    }
    return 0;
}

/* The gradient for `rows` rows: those in no bag get 0. */
int k_segment_spread_$(long bags, long end, long n, const T *x, const int64_t *offsets, long rows, T *out)
{
    if (!k_offsets_fit_$(bags, offsets, end))
        return 1;
    for (long i = 0; i < rows * n; i++)
        out[i] = 0;
    for (long b = 0; b < bags; b++, x += n) {
        const int64_t last = b + 1 < bags ? offsets[b + 1] : end;
        for (int64_t i = offsets[b]; i < last; i++)
            for (long j = 0; j < n; j++)
                out[i * n + j] = x[j];
    }
    return 0;
}
