/* The index of the first smallest element along the middle axis of x[outer][n][inner]. */
void k_argmin_f32(long outer, long n, long inner, const float *x, int64_t *out)
{
    for (long o = 0; o < outer; o++, x += n * inner)
        for (long j = 0; j < inner; j++) {
            float best = x[j];
            int64_t place = 0;
            for (long i = 1; i < n; i++) {
                const float v = x[i * inner + j];
                if (v < best || (v != v && best == best)) {
                    best = v;
                    place = i;
                }
            }
            *out++ = place;
        }
}
