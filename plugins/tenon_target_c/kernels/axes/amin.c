/* For T = f32 f64 i32 i64 i16 i8 u8. */
/* Minima along the middle axis of x[outer][n][inner]. */
void k_amin_$(long outer, long n, long inner, const T *x, T *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        for (long j = 0; j < inner; j++)
            out[j] = n > 0 ? x[j] : k_most_$;
        for (long i = 1; i < n; i++)
            for (long j = 0; j < inner; j++)
                if (x[i * inner + j] < out[j] || k_nan_$(x[i * inner + j]))
                    out[j] = x[i * inner + j];
    }
}
