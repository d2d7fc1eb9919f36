/* Matrix products of arrays of matrices at strides: sizes are b0, b1, m, n, k, then for each of a, b and c the
   strides along b0, b1, rows and columns (c's columns lie side by side). `scratch` holds the packed b
   ((n rounded up to 16) * k floats) and then the rows of a (m * min(k, 320)). */
void k_matmul(const long *sizes, const float *a, const float *b, float *c, float *scratch)
{
    const long m = sizes[2], n = sizes[3], k = sizes[4];
    const long *sa = sizes + 5, *sb = sizes + 9, *sc = sizes + 13;
    float *const rows = scratch + (n + 15) / 16 * 16 * k;
    for (long i = 0; i < sizes[0]; i++)
        for (long j = 0; j < sizes[1]; j++) {
            if ((i == 0 && j == 0) || sb[0] != 0 || sb[1] != 0)
                k_pack_columns(k, n, b + i * sb[0] + j * sb[1], sb[2], sb[3], scratch);
            k_gemm(m, n, k, a + i * sa[0] + j * sa[1], sa[2], sa[3], scratch, c + i * sc[0] + j * sc[1], sc[2],
                   NULL, NULL, 0, rows);
        }
}
