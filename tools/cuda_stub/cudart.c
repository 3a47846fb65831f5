/* The CUDA runtime: memory is that of the host, streams and events are empty, kernels do nothing. */
#include <driver_types.h>
#include <stdlib.h>
#include <string.h>

/* Memory. */

int cudaMalloc(void **memory, size_t bytes) {
    *memory = aligned_alloc(512, (bytes + 511) / 512 * 512 + 512);
    return *memory ? 0 : cudaErrorMemoryAllocation;
}

int cudaMallocFromPoolAsync(void **memory, size_t bytes) { return cudaMalloc(memory, bytes); }
int cudaMallocHost(void **memory, size_t bytes) { return cudaMalloc(memory, bytes); }
int cudaHostAlloc(void **memory, size_t bytes) { return cudaMalloc(memory, bytes); }

int cudaFree(void *memory) {
    free(memory);
    return 0;
}

int cudaFreeHost(void *memory) { return cudaFree(memory); }

int cudaMemcpy(void *to, const void *from, size_t bytes) {
    memmove(to, from, bytes);
    return 0;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes) { return cudaMemcpy(to, from, bytes); }
int cudaMemcpy2DAsync(void) { return 0; }

int cudaMemset(void *memory, int byte, size_t bytes) {
    memset(memory, byte, bytes);
    return 0;
}

int cudaMemsetAsync(void *memory, int byte, size_t bytes) { return cudaMemset(memory, byte, bytes); }

int cudaMemGetInfo(size_t *available, size_t *total) {
    *available = 100ul << 30;
    *total = 140ul << 30;
    return 0;
}

/* Handles: any memory of their own will do. */

static int make(void **handle) {
    *handle = calloc(1, 64);
    return 0;
}

int cudaMemPoolCreate(void **pool) { return make(pool); }
int cudaStreamCreate(void **stream) { return make(stream); }
int cudaStreamCreateWithFlags(void **stream) { return make(stream); }
int cudaEventCreate(void **event) { return make(event); }
int cudaEventCreateWithFlags(void **event) { return make(event); }
int cudaGraphInstantiate(void **executable) { return make(executable); }
int cudaStreamEndCapture(void *stream, void **graph) { return make(graph); }

int cudaStreamIsCapturing(void *stream, int *status) {
    *status = 0;
    return 0;
}

int cudaEventElapsedTime(float *milliseconds) {
    *milliseconds = 0.1f;
    return 0;
}

/* The device: one H200. */

int cudaGetDeviceCount(int *count) {
    *count = 1;
    return 0;
}

int cudaGetDevice(int *device) {
    *device = 0;
    return 0;
}

int cudaDeviceGetAttribute(int *value, int attribute) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMultiProcessorCount: *value = 132; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 232448; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
        default: *value = 1;
    }
    return 0;
}

int cudaGetDeviceProperties(struct cudaDeviceProp *device, int ordinal) {
    memset(device, 0, sizeof *device);
    strcpy(device->name, "stub");
    device->major = 9;
    device->multiProcessorCount = 132;
    device->warpSize = 32;
    device->totalGlobalMem = 140ul << 30;
    device->totalConstMem = 65536;
    device->l2CacheSize = 50 << 20;
    device->regsPerBlock = 65536;
    device->sharedMemPerBlock = 49152;
    device->sharedMemPerBlockOptin = 232448;
    device->sharedMemPerMultiprocessor = 233472;
    device->maxThreadsPerBlock = 1024;
    device->maxThreadsPerMultiProcessor = 2048;
    device->maxThreadsDim[0] = device->maxThreadsDim[1] = 1024;
    device->maxThreadsDim[2] = 64;
    device->maxGridSize[0] = 2147483647;
    device->maxGridSize[1] = device->maxGridSize[2] = 65535;
    return 0;
}

int cudaDriverGetVersion(int *version) {
    *version = 13050;
    return 0;
}

int cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
const char *cudaGetErrorString(int error) { return "stub"; }
const char *cudaGetErrorName(int error) { return "stub"; }

/* Kernels. */

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) {
    *blocks = 4;
    return 0;
}

int cudaFuncGetAttributes(void *attributes) {
    memset(attributes, 0, sizeof(struct cudaFuncAttributes));
    return 0;
}

int cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = (void *)pointer;
    return 0;
}

int cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long flags, int *status) {
    *function = 0;
    if (status) *status = 1;
    return 0;
}

void **__cudaRegisterFatBinary(void *binary) {
    static void *handle[4];
    return handle;
}
