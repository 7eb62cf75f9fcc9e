//! Peers that take no answers for a while, over real fabrics: a connection that takes no more calls goes on sending, and
//! ends when its peer does.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use odafs_common::connect::{Nonce, PrivateData, Role};
use odafs_common::direct::{Attach, Attached, Request};
use odafs_common::mac::MacAlgorithm;
use odafs_fabric::{PostError, QueuePair, iwarp, shm};

use super::world::World;
use crate::engine::*;

/// More than any of these takes: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Over {
    Shm,
    Iwarp,
}

/// A server over a real fabric, and a client.
struct Scene {
    world: World,
    client: Box<dyn QueuePair>,
    /// Of a direct connection.
    number: u32,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn new(over: Over, role: Role) -> Scene {
        // More than come in one batch.
        let mut world = World::new(EngineConfig {
            receives: 40,
            drain_time_max: Nanos::from_secs(60),
            ..EngineConfig::default()
        });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listener, transport): (Box<dyn Listener>, _) = match over {
            Over::Shm => {
                let listener = shm::Listener::bind(&path, shm::Limits::default()).unwrap();
                (Box::new(listener), Transport::Shm)
            }
            Over::Iwarp => {
                let listener = iwarp::Listener::bind(address, iwarp::Limits::default()).unwrap();
                address = listener.local_addr();
                (Box::new(listener), Transport::Iwarp)
            }
        };
        world.engine.listen(listener, transport).unwrap();
        let said = PrivateData {
            role,
            one_sided: false,
            nonce: Nonce::default(),
        };
        let said = said.encode();
        let client = std::thread::scope(|scope| {
            let dial = scope.spawn(|| match over {
                Over::Shm => shm::connect(&path, &said, &shm::ConnectOptions::default()),
                Over::Iwarp => iwarp::connect(address, &said, &iwarp::ConnectOptions::default()),
            });
            while !dial.is_finished() {
                world.engine.accept_next = Nanos(0);
                world.engine.poll_once();
            }
            dial.join().unwrap().unwrap()
        });
        let mut scene = Scene {
            world,
            client,
            number: 0,
            _directory: directory,
        };
        scene.client.post_receives(u32::MAX);
        if role == Role::Direct {
            scene.attach();
        }
        scene
    }

    fn attach(&mut self) {
        let nonce = PrivateData::decode(self.client.private_data())
            .unwrap()
            .nonce;
        let attach = Attach {
            session: self.world.session,
            nonce: [2; 16],
            one_sided: false,
        };
        let key = self.world.key.attach_key();
        self.send(&attach.seal(&key, &nonce)).unwrap();
        self.until(|scene| scene.client.poll().is_some());
        let answer = Attached::open(self.client.message(), &key, &[2; 16], &nonce).unwrap();
        self.number = answer.result.unwrap().connection;
    }

    /// Posts and flushes.
    fn send(&mut self, message: &[u8]) -> Result<(), PostError> {
        let posted = self.client.post_send(0, &[message]);
        self.client.flush();
        posted.map(drop)
    }

    /// A call that is answered with as much, or a request that is answered inline.
    fn ask(&mut self, role: Role) -> Result<(), PostError> {
        match role {
            Role::Rpc => self.send(&[b'e'; 8000]),
            Role::Direct => {
                let request = Request {
                    length: 4096,
                    ..self.world.request(self.number, 1, None)
                };
                let key = self.world.key.mac_key(MacAlgorithm::Blake3, 0);
                let sent = self.send(&request.seal(&key));
                // What was not sent takes no number.
                self.world.sequence -= u64::from(sent.is_err());
                sent
            }
        }
    }

    /// Asks on without taking an answer, until the server takes no more. How often.
    fn press(&mut self, role: Role) -> usize {
        let mut asked = 0;
        let mut refused = 0;
        while refused < 100 {
            match self.ask(role) {
                Ok(()) => (asked, refused) = (asked + 1, 0),
                Err(PostError::Full) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            self.world.rounds();
        }
        asked
    }

    fn until(&mut self, mut over: impl FnMut(&mut Scene) -> bool) {
        let began = Instant::now();
        while !over(self) {
            assert!(began.elapsed() < PATIENCE, "it never comes to that");
            self.world.engine.poll_once();
        }
    }
}

#[test]
fn who_pauses_gets_every_answer() {
    for over in [Over::Shm, Over::Iwarp] {
        for role in [Role::Rpc, Role::Direct] {
            let mut scene = Scene::new(over, role);
            let asked = scene.press(role);
            let mut answered = 0;
            scene.until(|scene| {
                while scene.client.poll().is_some() {
                    answered += 1;
                }
                answered == asked
            });
            assert_eq!(scene.world.engine.connections(), 1, "{over:?} {role:?}");
        }
    }
}

/// It is not woken for ever by what came before, which nobody takes.
#[test]
fn who_takes_nothing_lets_the_engine_sleep() {
    for over in [Over::Shm, Over::Iwarp] {
        let mut scene = Scene::new(over, Role::Rpc);
        for line in scene.world.engine.lines.iter_mut().flatten() {
            let Line::Rpc(line) = line else { continue };
            while !line.arm() {}
        }
        scene.press(Role::Rpc);
        // Somewhat less than it waits for: clocks differ. What the kernel still has to say of the socket may wake it first.
        let nap = Duration::from_millis(25);
        let wake = Arc::clone(&scene.world.engine.wake);
        let slept = (0..200).any(|_| {
            scene.world.rounds();
            wake.prepare();
            let began = Instant::now();
            wake.wait(Some(Nanos::from_millis(30)));
            began.elapsed() >= nap
        });
        assert!(slept, "{over:?}");
    }
}

#[test]
fn who_takes_nothing_and_dies_is_gone() {
    for over in [Over::Shm, Over::Iwarp] {
        for role in [Role::Rpc, Role::Direct] {
            let mut scene = Scene::new(over, role);
            scene.press(role);
            // What it posted and could not send goes with it.
            scene.client = Scene::new(over, role).client;
            scene.until(|scene| {
                scene.world.engine.wake.prepare();
                scene.world.engine.wake.wait(Some(Nanos::from_millis(1)));
                scene.world.engine.connections() == 0
            });
        }
    }
}

/// Whatever was answered before a stop arrives.
#[test]
fn a_stop_cuts_no_answer() {
    for over in [Over::Shm, Over::Iwarp] {
        let mut scene = Scene::new(over, Role::Rpc);
        scene.press(Role::Rpc);
        let Scene {
            mut world,
            mut client,
            ..
        } = scene;
        let client = std::thread::spawn(move || {
            let mut answered = 0;
            let began = Instant::now();
            loop {
                while client.poll().is_some() {
                    answered += 1;
                }
                if client.wait(Some(Nanos::from_millis(10))).is_err() {
                    return answered;
                }
                assert!(began.elapsed() < PATIENCE, "it never ends");
            }
        });
        world.engine.drain();
        let served = world.echo.calls.load(Ordering::Relaxed);
        drop(world);
        assert_eq!(client.join().unwrap(), served, "{over:?}");
    }
}
