/* Functions of one number, without branches and calls, so that compilers vectorize loops over them.
   Errors are a few units in the last place. */
#include <float.h>
#include <math.h>
#include <stdint.h>

/* What templates need of each type: sums and products of integers wrap, and none is NaN. */
#define k_nan_f32(a) ((a) != (a))
#define k_nan_f64(a) ((a) != (a))
#define k_nan_i32(a) 0
#define k_nan_i64(a) 0
#define k_nan_i16(a) 0
#define k_nan_i8(a) 0
#define k_nan_u8(a) 0
#define k_add_f32(a, b) ((a) + (b))
#define k_add_f64(a, b) ((a) + (b))
#define k_add_i32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define k_add_i64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define k_add_i16(a, b) ((int16_t)((a) + (b)))
#define k_add_i8(a, b) ((int8_t)((a) + (b)))
#define k_add_u8(a, b) ((uint8_t)((a) + (b)))
#define k_multiply_f32(a, b) ((a) * (b))
#define k_multiply_f64(a, b) ((a) * (b))
#define k_multiply_i32(a, b) ((int32_t)((uint32_t)(a) * (uint32_t)(b)))
#define k_multiply_i64(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define k_multiply_i16(a, b) ((int16_t)((a) * (b)))
#define k_multiply_i8(a, b) ((int8_t)((a) * (b)))
#define k_multiply_u8(a, b) ((uint8_t)((a) * (b)))
#define k_least_f32 (-INFINITY)
#define k_least_f64 (-INFINITY)
#define k_least_i32 INT32_MIN
#define k_least_i64 INT64_MIN
#define k_least_i16 INT16_MIN
#define k_least_i8 INT8_MIN
#define k_least_u8 0
#define k_most_f32 INFINITY
#define k_most_f64 INFINITY
#define k_most_i32 INT32_MAX
#define k_most_i64 INT64_MAX
#define k_most_i16 INT16_MAX
#define k_most_i8 INT8_MAX
#define k_most_u8 UINT8_MAX
#define k_fabs_f32 fabsf
#define k_fabs_f64 fabs
#define k_floor_f32 floorf
#define k_floor_f64 floor
#define k_rint_f32 rintf
#define k_rint_f64 rint

typedef union { float f; uint32_t u; } k_bits;

static inline float k_maximumf(float a, float b) { return (a > b) | (a != a) ? a : b; }
static inline float k_minimumf(float a, float b) { return (a < b) | (a != a) ? a : b; }
static inline double k_maximum(double a, double b) { return (a > b) | (a != a) ? a : b; }
static inline double k_minimum(double a, double b) { return (a < b) | (a != a) ? a : b; }

/* x truncated to an integer; NaN and numbers out of range give the smallest int64_t, as processors do. */
static inline int64_t k_whole(double a)
{
    return a >= -9223372036854775808.0 && a < 9223372036854775808.0 ? (int64_t)a : INT64_MIN;
}

/* Python's modulo: the result has the sign of b. */
static inline float k_remainderf(float a, float b)
{
    const float r = fmodf(a, b);
    return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

static inline double k_remainder(double a, double b)
{
    const double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

/* 2^n for a whole n from -126 to 127. */
static inline float k_scale(int32_t n)
{
    k_bits s;
    s.u = (uint32_t)(n + 127) << 23;
    return s.f;
}

static inline float k_expf(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    k_bits t, m;
    float r, p;
    int32_t n;
    const float y = x > 104.0f ? 104.0f : (x < -104.0f ? -104.0f : x);
    t.f = y * 1.44269504088896341f + magic;
    m.f = magic;
    n = (int32_t)(t.u - m.u);
    n = n > 160 ? 160 : (n < -160 ? -160 : n); /* of NaN */
    r = t.f - magic;
    r = (y - r * 0.693359375f) + r * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * k_scale(n / 2) * k_scale(n - n / 2);
}

static inline float k_sigmoidf(float x) { return 1.0f / (1.0f + k_expf(-x)); }
static inline double k_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

static inline float k_tanhf(float x)
{
    const float a = fabsf(x), z = x * x;
    const float far = 1.0f - 2.0f / (k_expf(2.0f * a) + 1.0f);
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    return a < 0.625f ? p : copysignf(far, x);
}

static inline float k_logf(float x)
{
    k_bits b;
    int32_t e;
    float m, z, y, n;
    const int tiny = x < FLT_MIN;
    b.f = tiny ? x * 8388608.0f : x;
    e = (int32_t)(b.u >> 23) - 126;
    b.u = (b.u & 0x007fffffu) | 0x3f000000u;
    m = b.f;
    n = (float)e - (tiny ? 23.0f : 0.0f);
    n = m < 0.707106781186547524f ? n - 1.0f : n;
    m = m < 0.707106781186547524f ? m + m - 1.0f : m - 1.0f;
    z = m * m;
    y = 7.0376836292e-2f;
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z - 2.12194440e-4f * n - 0.5f * z;
    y = m + y + 0.693359375f * n;
    y = x < INFINITY ? y : x; /* infinity and NaN */
    return x > 0.0f ? y : (x == 0.0f ? -INFINITY : (x < 0.0f ? NAN : x));
}

static inline float k_erff(float x)
{
    const float c = x > 4.0f ? 4.0f : (x < -4.0f ? -4.0f : x);
    const float z = c * c;
    float p = -2.72614225801306e-10f, q = -1.45660718464996e-05f;
    p = p * z + 2.77068142495902e-08f;
    p = p * z - 2.10102402082508e-06f;
    p = p * z - 5.69250639462346e-05f;
    p = p * z - 7.34990630326855e-04f;
    p = p * z - 2.95459980854025e-03f;
    p = p * z - 1.60960333262415e-02f;
    q = q * z - 2.13374055278905e-04f;
    q = q * z - 1.68282697438203e-03f;
    q = q * z - 7.37332916720468e-03f;
    q = q * z - 1.42647390514189e-02f;
    return c * p / q;
}
