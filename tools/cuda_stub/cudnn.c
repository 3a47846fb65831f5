/* The functions of cuDNN that return a size or a place. */
#include <stddef.h>

enum { WORKSPACE = 1024 };

size_t cudnnGetVersion(void) { return 91400; }

int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
    *bytes = WORKSPACE;
    return 0;
}

int cudnnGetReductionIndicesSize(void *handle, void *reduction, void *from, void *to, size_t *bytes) {
    *bytes = WORKSPACE;
    return 0;
}

int cudnnGetReductionWorkspaceSize(
    void *handle, void *reduction, void *from, void *to, size_t *bytes) {
    *bytes = WORKSPACE;
    return 0;
}

int cudnnGetConvolutionForwardWorkspaceSize(
    void *handle, void *x, void *w, void *conv, void *y, int algorithm, size_t *bytes) {
    *bytes = WORKSPACE;
    return 0;
}

int cudnnGetRNNTempSpaceSizes(
    void *handle, void *rnn, int mode, void *x, size_t *workspace, size_t *reserve) {
    if (workspace) *workspace = WORKSPACE;
    if (reserve) *reserve = WORKSPACE;
    return 0;
}

int cudnnGetRNNWeightParams(
    void *handle, void *rnn, int layer, size_t bytes, void *weights, int matrix, void *matrix_shape,
    void **matrix_place, void *bias_shape, void **bias_place) {
    if (matrix_place) *matrix_place = weights;
    if (bias_place) *bias_place = weights;
    return 0;
}

int cudnnGetTensorNdDescriptor(
    void *descriptor, int wanted, int *type, int *rank, int *lengths, int *strides) {
    if (type) *type = 0;
    if (rank) *rank = 3;
    for (int axis = 0; axis < wanted && axis < 3; axis++) lengths[axis] = strides[axis] = 1;
    return 0;
}
