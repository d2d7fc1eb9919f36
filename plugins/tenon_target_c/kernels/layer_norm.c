/* Rows x[rows][n] with mean 0 and variance 1, times `weight` plus `bias` (each may be NULL). `mean` and
   `deviation` get each row's mean and reciprocal standard deviation, unless they are NULL. */
void k_layer_norm(long rows, long n, const float *x, const float *weight, const float *bias, float epsilon,
                  float *out, float *mean, float *deviation)
{
    for (long r = 0; r < rows; r++, x += n, out += n) {
        float lanes[16] = {0}, m, d;
        double sum = 0.0;
        long i = 0;
        for (; i + 16 <= n; i += 16)
            for (long l = 0; l < 16; l++)
                lanes[l] += x[i + l];
        for (long l = 0; l < 16; l++) {
            sum += lanes[l];
            lanes[l] = 0.0f;
        }
        for (; i < n; i++)
            sum += x[i];
        m = (float)(sum / (double)n);
        for (i = 0; i + 16 <= n; i += 16)
            for (long l = 0; l < 16; l++)
                lanes[l] += (x[i + l] - m) * (x[i + l] - m);
        sum = 0.0;
        for (long l = 0; l < 16; l++)
            sum += lanes[l];
        for (; i < n; i++)
            sum += (x[i] - m) * (x[i] - m);
        d = (float)(1.0 / sqrt(sum / (double)n + epsilon));
        for (long j = 0; j < n; j++)
            out[j] = (x[j] - m) * d;
        if (weight)
            for (long j = 0; j < n; j++)
                out[j] *= weight[j];
        if (bias)
            for (long j = 0; j < n; j++)
                out[j] += bias[j];
        if (mean) {
            mean[r] = m;
            deviation[r] = d;
        }
    }
}
