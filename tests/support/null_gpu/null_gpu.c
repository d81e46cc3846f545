/* A CUDA driver and runtime without a GPU: memory is the host's, kernels are logged and not run.

TVM, the loader of an artifact and our own ctypes calls load this instead of NVIDIA's libraries. It
refuses what a GPU refuses: kernels that a module does not have, launches beyond the limits of sm_90,
pointers that are not in living memory, allocations while a graph is captured. Each launch passes
KERNEL_NS of made-up time, so that events have times.

Every call that does something is a line of the file that NULL_GPU_LOG names:

    launch NAME grid X Y Z block X Y Z shared BYTES dependent 0|1 captured 0|1 pointers LEFT ...
    node NAME ...          a kernel of a graph, in each launch of the graph, as above
    graph NODES            a launch of a graph, before its nodes
    event                  a node that records an event
    malloc BYTES, free, copy BYTES KIND, refused REASON

LEFT is the number of bytes from a pointer to the end of its allocation; `?` where the module does
not say what the kernel's arguments are. */
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#define KERNEL_NS 5000
#define MOST_THREADS 1024
#define MOST_SHARED (227 << 10)
#define PLAIN_SHARED (48 << 10)
#define MOST_ARGUMENTS 64
#define FATBIN 0xBA55ED50u
#define COMPRESSED 0xA000u /* flags of a part of a fatbin: LZ4 or zstd */
#define PARAMETER 0x1704   /* EIATTR_KPARAM_INFO with EIFMT_SVAL */

static void say(const char *format, ...) {
  static FILE *file;
  if (!file) {
    const char *name = getenv("NULL_GPU_LOG");
    file = fopen(name ? name : "/dev/null", "a");
    setvbuf(file, NULL, _IOLBF, 0);
  }
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
}

static int refused(int code, const char *why) {
  say("refused %s\n", why);
  return code;
}

/* Memory */

typedef struct Block {
  char *start;
  size_t size;
  struct Block *next;
} Block;
static Block *blocks;
static size_t used;
static int capturing;

static Block *block_of(uintptr_t at) {
  for (Block *b = blocks; b; b = b->next)
    if (at >= (uintptr_t)b->start && at < (uintptr_t)b->start + b->size) return b;
  return NULL;
}

static size_t total(void) {
  const char *given = getenv("NULL_GPU_BYTES");
  return given ? strtoull(given, NULL, 10) : (size_t)8 << 30;
}

static int allocate(void **out, size_t size) {
  if (capturing) return refused(cudaErrorStreamCaptureUnsupported, "malloc during capture");
  if (used + size > total()) return refused(cudaErrorMemoryAllocation, "malloc beyond the memory");
  Block *made = malloc(sizeof *made);
  made->size = size;
  made->start = aligned_alloc(512, (size + 511) / 512 * 512);
  memset(made->start, 0xFF, size); /* NaN, and no valid index */
  made->next = blocks;
  blocks = made;
  used += size;
  say("malloc %zu\n", size);
  *out = made->start;
  return 0;
}

static int release(void *pointer) {
  if (!pointer) return 0;
  if (capturing) return refused(cudaErrorStreamCaptureUnsupported, "free during capture");
  for (Block **at = &blocks; *at; at = &(*at)->next)
    if ((*at)->start == pointer) {
      Block *found = *at;
      *at = found->next;
      used -= found->size;
      free(found->start);
      free(found);
      say("free\n");
      return 0;
    }
  return refused(cudaErrorInvalidValue, "free of what was not allocated");
}

/* Modules: the kernels of a cubin, or of a fatbin that is not compressed */

typedef struct Kernel {
  char name[4096];
  int arguments; /* -1: not known */
  int sizes[MOST_ARGUMENTS];
  int most_shared;
} Kernel;

static const Elf64_Shdr *section(const char *image, const char *wanted) {
  const Elf64_Ehdr *head = (const void *)image;
  const Elf64_Shdr *all = (const void *)(image + head->e_shoff);
  const char *names = image + all[head->e_shstrndx].sh_offset;
  for (int i = 0; i < head->e_shnum; i++)
    if (!strcmp(names + all[i].sh_name, wanted)) return &all[i];
  return NULL;
}

static void read_arguments(const char *image, Kernel *kernel) {
  char name[4200];
  snprintf(name, sizeof name, ".nv.info.%s", kernel->name);
  const Elf64_Shdr *info = section(image, name);
  kernel->arguments = 0;
  if (!info) return;
  const char *at = image + info->sh_offset, *end = at + info->sh_size;
  while (at + 4 <= end) {
    uint16_t key, size;
    memcpy(&key, at, 2);
    memcpy(&size, at + 2, 2);
    if (key == PARAMETER) {
      uint16_t ordinal;
      uint32_t flags;
      memcpy(&ordinal, at + 8, 2);
      memcpy(&flags, at + 12, 4);
      if (ordinal < MOST_ARGUMENTS) {
        kernel->sizes[ordinal] = flags >> 18;
        if (ordinal >= kernel->arguments) kernel->arguments = ordinal + 1;
      }
    }
    at += (key & 0xFF) == 4 ? 4 + size : 4; /* other formats have their value in place of a size */
  }
}

/* Find a kernel in one cubin. */
static int find_in(const char *image, Kernel *kernel) {
  char name[4200];
  snprintf(name, sizeof name, ".text.%s", kernel->name);
  if (!section(image, name)) return 0;
  read_arguments(image, kernel);
  return 1;
}

static int find(const char *image, Kernel *kernel) {
  if (!memcmp(image, ELFMAG, SELFMAG)) return find_in(image, kernel);
  uint32_t magic;
  memcpy(&magic, image, 4);
  if (magic != FATBIN) return 0;
  uint16_t head;
  uint64_t whole;
  memcpy(&head, image + 6, 2);
  memcpy(&whole, image + 8, 8);
  for (const char *part = image + head, *end = part + whole; part < end;) {
    uint16_t kind, flags;
    uint32_t part_head;
    uint64_t size;
    memcpy(&kind, part, 2);
    memcpy(&part_head, part + 4, 4);
    memcpy(&size, part + 8, 8);
    memcpy(&flags, part + 40, 2);
    if (kind == 2 && (flags & COMPRESSED)) {
      kernel->arguments = -1;
      return 1;
    }
    if (kind == 2 && find_in(part + part_head, kernel)) return 1;
    part += part_head + size;
  }
  return 0;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  uint32_t magic;
  memcpy(&magic, image, 4);
  if (memcmp(image, ELFMAG, SELFMAG) && magic != FATBIN)
    return refused(CUDA_ERROR_INVALID_IMAGE, "a module that is neither a cubin nor a fatbin");
  *out = (CUmodule)image;
  say("module\n");
  return 0;
}

CUresult cuModuleUnload(CUmodule module) { return 0; }

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  Kernel *made = calloc(1, sizeof *made);
  snprintf(made->name, sizeof made->name, "%s", name);
  made->most_shared = PLAIN_SHARED;
  if (!find((const char *)module, made))
    return refused(CUDA_ERROR_NOT_FOUND, "a kernel that its module does not have");
  *out = (CUfunction)made;
  return 0;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return 0;
  if (value > MOST_SHARED) return refused(CUDA_ERROR_INVALID_VALUE, "too much shared memory");
  ((Kernel *)function)->most_shared = value;
  return 0;
}

/* Streams, events, graphs */

typedef struct {
  uint64_t at_ns;
} Event;
typedef struct {
  Kernel *kernel; /* NULL: an event */
  Event *event;
  CUlaunchConfig config;
  int dependent;
  uint64_t values[MOST_ARGUMENTS];
} Node;
typedef struct {
  Node *nodes;
  int count;
} Graph;
static Graph *captured;
static uint64_t now_ns = 1000;

static Node *add(Graph *graph) {
  graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof(Node));
  memset(&graph->nodes[graph->count], 0, sizeof(Node));
  return &graph->nodes[graph->count++];
}

static int launch(const char *what, const Node *node) {
  const CUlaunchConfig *c = &node->config;
  const Kernel *kernel = node->kernel;
  char pointers[MOST_ARGUMENTS * 24] = " ?", *at = pointers;
  for (int i = 0; i < kernel->arguments; i++) {
    Block *found = kernel->sizes[i] == 8 ? block_of(node->values[i]) : NULL;
    if (kernel->sizes[i] == 8 && node->values[i] && !found)
      return refused(CUDA_ERROR_ILLEGAL_ADDRESS, "a pointer outside of living memory");
    at += sprintf(at, " %zu", found ? (size_t)(found->start + found->size -
                                               (char *)node->values[i]) : (size_t)0);
  }
  say("%s %s grid %u %u %u block %u %u %u shared %u dependent %d captured %d pointers%s\n", what,
      kernel->name, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
      c->sharedMemBytes, node->dependent, capturing, pointers);
  return 0;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **values,
                          void **extra) {
  Kernel *kernel = (Kernel *)function;
  Node node = {.kernel = kernel, .config = *config};
  unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  if (!threads || threads > MOST_THREADS || !config->gridDimX || !config->gridDimY ||
      !config->gridDimZ || config->gridDimY > 65535 || config->gridDimZ > 65535)
    return refused(CUDA_ERROR_INVALID_VALUE, "a grid or block that no GPU runs");
  if (config->sharedMemBytes > (unsigned)kernel->most_shared)
    return refused(CUDA_ERROR_INVALID_VALUE, "more shared memory than was asked for");
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      node.dependent = config->attrs[i].value.programmaticStreamSerializationAllowed;
  for (int i = 0; i < kernel->arguments; i++)
    memcpy(&node.values[i], values[i], kernel->sizes[i] < 8 ? kernel->sizes[i] : 8);
  int code = launch("launch", &node);
  if (!code && capturing)
    *add(captured) = node;
  else
    now_ns += KERNEL_NS;
  return code;
}

CUresult cuCtxSynchronize(void) {
  return capturing ? refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "waiting during capture") : 0;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = capturing && stream ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return 0;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  *stream = malloc(8);
  return 0;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return free(stream), 0; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cuCtxSynchronize(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return 0;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  if (capturing) return refused(cudaErrorIllegalState, "a capture during a capture");
  captured = calloc(1, sizeof *captured);
  capturing = 1;
  return 0;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  if (!capturing) return refused(cudaErrorIllegalState, "the end of no capture");
  capturing = 0;
  *graph = (cudaGraph_t)captured;
  return 0;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
  const Graph *from = (const Graph *)graph;
  Graph *made = calloc(1, sizeof *made);
  for (int i = 0; i < from->count; i++) *add(made) = from->nodes[i];
  *out = (cudaGraphExec_t)made;
  return 0;
}

static void drop(Graph *graph) {
  free(graph->nodes);
  free(graph);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return drop((Graph *)graph), 0; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return drop((Graph *)graph), 0; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t given, cudaStream_t stream) {
  const Graph *graph = (const Graph *)given;
  say("graph %d\n", graph->count);
  for (int i = 0; i < graph->count; i++) {
    const Node *node = &graph->nodes[i];
    int code = node->kernel ? launch("node", node) : 0;
    if (code) return code;
    if (node->kernel)
      now_ns += KERNEL_NS;
    else {
      say("event\n");
      node->event->at_ns = now_ns;
    }
  }
  return 0;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  if (capturing) return refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "event during capture");
  *event = calloc(1, sizeof(Event));
  return 0;
}
CUresult cuEventDestroy_v2(CUevent event) { return free(event), 0; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, 0);
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  if (capturing && stream) {
    if (flags != CU_EVENT_RECORD_EXTERNAL)
      return refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an event that is no node");
    add(captured)->event = (Event *)event;
  } else if (capturing)
    return refused(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream during capture");
  else
    ((Event *)event)->at_ns = now_ns;
  return 0;
}
CUresult cuEventSynchronize(CUevent event) { return 0; }
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  *ms = ((double)((Event *)to)->at_ns - (double)((Event *)from)->at_ns) * 1e-6;
  return 0;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cuEventCreate((CUevent *)event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return cuEventDestroy_v2((CUevent)event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cuEventRecord((CUevent)event, (CUstream)stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return 0; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  return cuEventElapsedTime(ms, (CUevent)from, (CUevent)to);
}

cudaError_t cudaMalloc(void **out, size_t size) { return allocate(out, size); }
cudaError_t cudaFree(void *pointer) { return release(pointer); }
cudaError_t cudaMallocHost(void **out, size_t size) { return *out = malloc(size), 0; }
cudaError_t cudaFreeHost(void *pointer) { return free(pointer), 0; }
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all) {
  *free_bytes = total() - used;
  *all = total();
  return 0;
}
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
  return cudaMemGetInfo(free_bytes, all);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (capturing) return refused(cudaErrorStreamCaptureUnsupported, "a copy during capture");
  int onto = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const Block *block = block_of((uintptr_t)(onto ? to : from));
  if (size && (!block || (onto ? (char *)to : (char *)from) + size > block->start + block->size))
    return refused(cudaErrorInvalidValue, "a copy outside of living memory");
  memcpy(to, from, size);
  say("copy %zu %d\n", size, kind);
  return 0;
}
cudaError_t cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}
CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t size) {
  const Block *block = block_of(at);
  if (!block || (char *)at + size > block->start + block->size)
    return refused(CUDA_ERROR_INVALID_VALUE, "a fill outside of living memory");
  memset((void *)at, value, size);
  return 0;
}

/* The device: an H200 by its numbers */

static int attribute(int number) {
  switch (number) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 60 << 20;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return MOST_SHARED;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return PLAIN_SHARED;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return MOST_THREADS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1980000;
    default: return 1;
  }
}

CUresult cuInit(unsigned flags) { return 0; }
CUresult cuDriverGetVersion(int *version) { return *version = 13000, 0; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, 0; }
CUresult cuDeviceGet(CUdevice *device, int index) {
  *device = index;
  return index ? CUDA_ERROR_INVALID_DEVICE : 0;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  return snprintf(name, size, "null GPU"), 0;
}
CUresult cuDeviceGetPCIBusId(char *bus, int size, CUdevice device) {
  return snprintf(bus, size, "0000:01:00.0"), 0;
}
CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device) { return *size = total(), 0; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute number, CUdevice device) {
  return *value = attribute(number), 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  return *context = (CUcontext)8, 0;
}
CUresult cuCtxSetCurrent(CUcontext context) { return 0; }
CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, 0; }
CUresult cuGetErrorName(CUresult code, const char **name) {
  static char text[32];
  snprintf(text, sizeof text, "CUDA_ERROR_%d", code);
  switch (code) {
    case CUDA_ERROR_INVALID_VALUE: return *name = "CUDA_ERROR_INVALID_VALUE", 0;
    case CUDA_ERROR_OUT_OF_MEMORY: return *name = "CUDA_ERROR_OUT_OF_MEMORY", 0;
    case CUDA_ERROR_INVALID_IMAGE: return *name = "CUDA_ERROR_INVALID_IMAGE", 0;
    case CUDA_ERROR_NOT_FOUND: return *name = "CUDA_ERROR_NOT_FOUND", 0;
    case CUDA_ERROR_ILLEGAL_ADDRESS: return *name = "CUDA_ERROR_ILLEGAL_ADDRESS", 0;
    default: return *name = text, 0;
  }
}
CUresult cuGetErrorString(CUresult code, const char **text) { return cuGetErrorName(code, text); }
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return 0;
}

cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, 0; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, 0; }
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : 0; }
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr number, int device) {
  if (device) return cudaErrorInvalidDevice;
  return *value = attribute(number), 0; /* the runtime's numbers are the driver's */
}
#undef cudaGetDeviceProperties /* CUDA 12's headers rename it, and CUDA 13's structure is shorter */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
  snprintf(out->name, sizeof out->name, "null GPU");
  out->totalGlobalMem = total();
  return 0;
}
cudaError_t cudaGetLastError(void) { return 0; }
cudaError_t cudaPeekAtLastError(void) { return 0; }
const char *cudaGetErrorName(cudaError_t code) {
  const char *name;
  return cuGetErrorName((CUresult)code, &name), name;
}
const char *cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }
