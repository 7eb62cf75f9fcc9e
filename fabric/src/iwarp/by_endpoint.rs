//! What the queue pairs over iWARP have in common, on TCP sockets and in the simulator.

/// The methods of [`QueuePair`](crate::fabric::QueuePair) that an endpoint answers, for a type with a field `endpoint` and the
/// methods `open`, `posted` and `advance`. The types that the trait names are in scope.
macro_rules! by_endpoint {
    () => {
        fn post_receives(&mut self, count: u32) {
            self.endpoint.post_receives(count);
        }

        fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
            self.open()?;
            let posted = self.endpoint.post_send(parts, None);
            self.posted(posted)
        }

        fn post_send_invalidate(
            &mut self,
            _id: u64,
            parts: &[&[u8]],
            invalidate: SteeringTag,
        ) -> Result<Posted, PostError> {
            self.open()?;
            let posted = self.endpoint.post_send(parts, Some(invalidate));
            self.posted(posted)
        }

        fn post_write(
            &mut self,
            id: u64,
            from: Source<'_>,
            to: Remote,
        ) -> Result<Posted, PostError> {
            self.open()?;
            let posted = self.endpoint.post_write(id, from, to);
            self.posted(posted)
        }

        fn post_read(
            &mut self,
            id: u64,
            into: Sink<'_>,
            from: Remote,
        ) -> Result<Posted, PostError> {
            self.open()?;
            let posted = self.endpoint.post_read(id, into, from);
            self.posted(posted.map(|()| Posted::Pending))
        }

        fn reads_max(&self) -> u32 {
            self.endpoint.reads_max()
        }

        fn poll(&mut self) -> Option<Completion> {
            if let Some(completion) = self.endpoint.poll() {
                return Some(completion);
            }
            self.advance();
            self.endpoint.poll()
        }

        fn poll_send_queue(&mut self) -> Option<Completion> {
            if let Some(completion) = self.endpoint.poll_send_queue() {
                return Some(completion);
            }
            self.advance();
            self.endpoint.poll_send_queue()
        }

        fn message(&self) -> &[u8] {
            self.endpoint.message()
        }

        fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
            self.open()?;
            self.endpoint.register(length, access)
        }

        fn bind(
            &mut self,
            region: &Arc<Region>,
            offset: usize,
            length: usize,
            access: Access,
        ) -> io::Result<Remote> {
            self.open()?;
            self.endpoint.bind(region, offset, length, access)
        }

        fn invalidate(&mut self, tag: SteeringTag) {
            self.endpoint.invalidate(tag);
        }

        fn remote_invalidation(&self) -> RemoteInvalidation {
            RemoteInvalidation::Any
        }

        fn read_order(&self) -> ReadOrder {
            ReadOrder::Ordered
        }

        /// The life word is no part of it: a connection belongs to this boot instance.
        fn expose(&mut self, arena: &Arc<Arena>, _life: &LifeWord) -> io::Result<Exposed> {
            self.open()?;
            self.endpoint.expose(arena)
        }

        fn max_message(&self) -> usize {
            MESSAGE_MAX
        }
    };
}

pub(crate) use by_endpoint;
