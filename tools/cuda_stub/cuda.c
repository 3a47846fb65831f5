/* The CUDA driver, as far as ONNX Runtime asks for it: one device, of compute capability 9.0. */
#include <stddef.h>
#include <string.h>

enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };

long cuTensorMapEncodeTiled(void) { return 0; }

int cuInit(unsigned flags) { return 0; }

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == COMPUTE_CAPABILITY_MAJOR ? 9 : attribute == COMPUTE_CAPABILITY_MINOR ? 0 : 1;
    return 0;
}

int cuDeviceComputeCapability(int *major, int *minor, int device) {
    *major = 9;
    *minor = 0;
    return 0;
}

int cuDeviceGetName(char *name, int length, int device) {
    strncpy(name, "stub", length);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = 140ul << 30;
    return 0;
}

int cuDriverGetVersion(int *version) {
    *version = 13050;
    return 0;
}
