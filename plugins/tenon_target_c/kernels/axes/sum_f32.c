/* Sums along the middle axis of x[outer][n][inner]. */
void k_sum_f32(long outer, long n, long inner, const float *x, float *out)
{
    for (long o = 0; o < outer; o++, x += n * inner, out += inner) {
        if (inner == 1) {
            float lanes[32] = {0};
            double sum = 0.0;
            long i = 0;
            for (; i + 32 <= n; i += 32)
                for (long l = 0; l < 32; l++)
                    lanes[l] += x[i + l];
            for (; i < n; i++)
                sum += x[i];
            for (long l = 0; l < 32; l++)
                sum += lanes[l];
            out[0] = (float)sum;
            continue;
        }
        for (long j = 0; j < inner; j++)
            out[j] = 0.0f;
        for (long i = 0; i < n; i++)
            for (long j = 0; j < inner; j++)
                out[j] += x[i * inner + j];
    }
}
