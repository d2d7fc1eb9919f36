/* A linear layer whose input is quantized by its largest magnitude; `packed` has rows * depth integers. */
void k_int8_dynamic_linear(long rows, long count, long k, const float *x, const int8_t *weight, const float *scale,
                           const float *bias, float *out, int16_t *packed)
{
    float step;
    k_int8_dynamic(rows, k, x, &step, packed);
    k_int8_product(rows, count, (k + 15) / 16 * 16, packed, weight, scale, bias, step, 0, out, NULL, 1.0f, 0, count,
                   1);
}
