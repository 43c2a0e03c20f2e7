//! A scope's copies may still read the source, whoever has their handles.

use std::sync::Arc;

use pinpool::Stager;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};

fn early(stager: &Stager, stream: &Arc<CudaStream>, mut target: CudaSlice<u8>) {
    let mut source = vec![1_u8; 1 << 20];
    stager.scope(|scope| {
        let copy = scope.upload(&source, stream, &mut target);
        source[0] = 2;
        drop(copy);
    });
}

fn inside(stager: &Stager, stream: &Arc<CudaStream>, mut target: CudaSlice<u8>) {
    stager.scope(|scope| {
        let source = vec![1_u8; 1 << 20];
        drop(scope.upload(&source, stream, &mut target));
    });
}

fn target(stager: &Stager, stream: &Arc<CudaStream>, mut target: CudaSlice<u8>) {
    let source = vec![1_u8; 1 << 20];
    stager.scope(|scope| {
        drop(scope.upload(&source, stream, &mut target));
        let _ = stream.clone_dtoh(&target);
    });
}

fn main() {}
