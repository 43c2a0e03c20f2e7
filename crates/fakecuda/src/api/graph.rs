//! Graphs that stream capture made.

use std::ffi::c_ulonglong;

use super::Handle;
use crate::abi::{Out, driver_api};
use crate::codes;

/// `AUTO_FREE_ON_LAUNCH`, `UPLOAD`, `DEVICE_LAUNCH`, `USE_NODE_PRIORITY`.
const FLAGS: c_ulonglong = 0xf;
/// `AUTO_FREE_ON_LAUNCH` with `DEVICE_LAUNCH`, which exclude one another.
const EXCLUSIVE: c_ulonglong = 1 | 4;

driver_api! {
    /// The copy is independent of the graph.
    fn cuGraphInstantiateWithFlags[Work](
        call,
        executable: Out<Handle>,
        graph: Handle,
        flags: c_ulonglong,
    ) {
        if flags & !FLAGS != 0 || flags & EXCLUSIVE == EXCLUSIVE {
            return Err(codes::INVALID_VALUE);
        }
        let copy = call.state.graphs.get(&graph).ok_or(codes::INVALID_HANDLE)?.clone();
        executable.set(call.state.add_graph(copy))
    }

    fn cuGraphUpload[Work](call, executable: Handle, stream: Handle) {
        call.state.stream(stream, call.context)?;
        call.state.graphs.get(&executable).map(|_| ()).ok_or(codes::INVALID_HANDLE)
    }

    fn cuGraphLaunch[Work](call, executable: Handle, stream: Handle) {
        let id = call.state.stream(stream, call.context)?;
        call.state.launch(executable, id)
    }

    fn cuGraphExecDestroy[Work](call, executable: Handle) {
        call.state.graphs.remove(&executable).map(|_| ()).ok_or(codes::INVALID_HANDLE)
    }

    fn cuGraphDestroy[Work](call, graph: Handle) {
        call.state.graphs.remove(&graph).map(|_| ()).ok_or(codes::INVALID_HANDLE)
    }
}
