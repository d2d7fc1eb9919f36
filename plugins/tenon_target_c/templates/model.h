/* @title@
   Written by tenon. Call model_load once, then model_run as often as you like; nothing is allocated. */
#ifndef @guard@
#define @guard@

#include <stddef.h>
#include <stdint.h>

#define MODEL_INPUTS @inputs@
#define MODEL_OUTPUTS @outputs@
#define MODEL_NUMBERS @numbers@
#define MODEL_RANK @rank@

enum {
    MODEL_FLOAT32,
    MODEL_FLOAT64,
    MODEL_INT64,
    MODEL_INT32,
    MODEL_INT16,
    MODEL_INT8,
    MODEL_UINT8,
    MODEL_BOOL
};

/* What the functions return. */
enum {
    MODEL_OK,
    MODEL_NOT_LOADED, /* model_run was called before model_load */
    MODEL_NO_FILE,    /* the weights file cannot be read or written */
    MODEL_BAD_FILE,   /* it is no weights file of this model, or damaged */
    MODEL_BAD_COUNT,  /* another number of inputs or outputs */
    MODEL_BAD_TYPE,   /* an argument of another type */
    MODEL_BAD_SHAPE,  /* an argument of another shape */
    MODEL_BAD_DATA,   /* an argument without memory */
    MODEL_BAD_INDEX,  /* an index, class or token out of range; outputs are not complete */
    MODEL_BAD_NUMBER, /* a number of a training step by which Python decided (momentum or none) has changed */
    MODEL_ZERO_DIVISOR /* an integer was divided by zero; outputs are not complete */
};

/* An array in C order. Memory of outputs must overlap neither with another argument's nor with the model's. */
typedef struct {
    void *data;
    int type;
    int rank;
    long shape[MODEL_RANK];
} model_tensor;

/* Name, type and shape of each argument; `data` is NULL. Sizes that may change are the largest. */
extern const char *const model_input_names[MODEL_INPUTS + 1];
extern const char *const model_output_names[MODEL_OUTPUTS + 1];
extern const model_tensor model_input_specs[MODEL_INPUTS + 1];
extern const model_tensor model_output_specs[MODEL_OUTPUTS + 1];

/* Read the weights from a file, or from `size` bytes of memory. */
int model_load(const char *path);
int model_load_bytes(const void *bytes, size_t size);

/* Set type, rank and shape of each output, for inputs of these shapes. */
void model_shapes(const model_tensor *inputs, model_tensor *outputs);

int model_run(const model_tensor *inputs, int input_count, const model_tensor *outputs, int output_count);

/* The meaning of a code that a function has returned; and what exactly was wrong with the last call. */
const char *model_error(int code);
const char *model_message(void);
@training@
#endif
