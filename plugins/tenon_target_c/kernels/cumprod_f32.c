/* Running products along the middle axis of x[outer][n][inner]. */
void k_cumprod_f32(long outer, long n, long inner, const float *x, float *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += n * inner) {
        for (long j = 0; j < inner; j++)
            out[j] = x[j];
        for (long i = inner; i < n * inner; i++)
            out[i] = out[i - inner] * x[i];
    }
}
