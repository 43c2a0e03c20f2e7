//! Functions that exist only so that a caller gets an answer: a missing symbol makes cudarc panic.

use crate::abi::driver_api;
use crate::codes;

/// Declares functions that answer `CUDA_ERROR_NOT_SUPPORTED`, whatever their parameters.
///
/// They are declared without parameters: under the C conventions of x86-64 and 64-bit Arm the
/// caller alone passes and removes arguments, so a callee may ignore them.
macro_rules! unsupported {
    ($($name:ident)*) => {
        driver_api! {
            $(fn $name[Nothing](_call) { Err(codes::NOT_SUPPORTED) })*
        }
    };
}

unsupported! {
    cuArrayCreate_v2
    cuCtxGetCacheConfig
    cuCtxGetLimit
    cuCtxSetCacheConfig
    cuCtxSetLimit
    cuDestroyExternalMemory
    cuDeviceGetDefaultMemPool
    cuDeviceGetMemPool
    cuDeviceSetMemPool
    cuExternalMemoryGetMappedBuffer
    cuFuncGetAttribute
    cuFuncSetAttribute
    cuFuncSetCacheConfig
    cuGetExportTable
    cuImportExternalMemory
    cuIpcGetMemHandle
    cuIpcOpenMemHandle_v2
    cuLaunchCooperativeKernel
    cuLaunchKernel
    cuLaunchKernelEx
    cuMemAdvise_v2
    cuMemAllocFromPoolAsync
    cuMemAllocManaged
    cuMemAllocPitch_v2
    cuMemcpy2DAsync_v2
    cuMemcpy2D_v2
    cuMemcpyBatchAsync
    cuMemcpyBatchAsync_v2
    cuMemPoolCreate
    cuMemPoolDestroy
    cuMemPoolGetAttribute
    cuMemPoolSetAttribute
    cuMemPoolTrimTo
    cuMemPrefetchAsync_v2
    cuModuleGetFunction
    cuModuleGetGlobal_v2
    cuModuleLoad
    cuModuleLoadData
    cuModuleLoadDataEx
    cuModuleUnload
    cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cuOccupancyMaxActiveClusters
    cuOccupancyMaxPotentialBlockSize
    cuOccupancyMaxPotentialBlockSizeWithFlags
    cuOccupancyMaxPotentialClusterSize
    cuProfilerStart
    cuProfilerStop
    cuStreamAddCallback
    cuStreamAttachMemAsync
    cuStreamBatchMemOp_v2
    cuStreamWaitValue32_v2
    cuStreamWaitValue64_v2
    cuStreamWriteValue32_v2
    cuStreamWriteValue64_v2
}
