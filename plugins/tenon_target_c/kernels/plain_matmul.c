/* For T = f64 i32 i64 i16 i8 u8. */
/* `k_matmul` of other types: the same sizes and strides, in plain loops. */
void k_plain_matmul_$(const long *sizes, const T *a, const T *b, T *c)
{
    const long m = sizes[2], n = sizes[3], k = sizes[4];
    const long *sa = sizes + 5, *sb = sizes + 9, *sc = sizes + 13;
    for (long i = 0; i < sizes[0]; i++)
        for (long j = 0; j < sizes[1]; j++)
            for (long r = 0; r < m; r++) {
                const T *x = a + i * sa[0] + j * sa[1] + r * sa[2];
                T *z = c + i * sc[0] + j * sc[1] + r * sc[2];
                for (long q = 0; q < n; q++)
                    z[q] = 0;
                for (long p = 0; p < k; p++) {
                    const T *y = b + i * sb[0] + j * sb[1] + p * sb[2];
                    for (long q = 0; q < n; q++)
                        z[q] = k_add_$(z[q], k_multiply_$(x[p * sa[3]], y[q * sb[3]]));
                }
            }
}
