
/* A run is one step: it changes parameters and optimizer state. The numbers of a step (learning rate, step
   count, ...) are read from model_numbers; step counts go up by one with each run. */
extern const char *const model_number_names[MODEL_NUMBERS + 1];
extern double model_numbers[MODEL_NUMBERS + 1];

/* Write parameters and state to a file that model_load reads. */
int model_save(const char *path);
