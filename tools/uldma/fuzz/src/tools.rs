// SPDX-License-Identifier: MIT OR Apache-2.0

//! Inputs of programs: requests at the device model's control socket, messages of clients to the
//! ivshmem server, and command lines.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::outcomes::Outcomes;

const NODES: usize = 3;
/// Time in which a program must reject wrong input.
const DEADLINE: Duration = Duration::from_secs(20);

const COMMANDS: [&str; 5] = ["stats", "link", "stall", "hold", "fault"];
const FAULTS: [&str; 13] = [
    "stall",
    "hold",
    "drop-completion",
    "forge-completion",
    "drop-interrupt",
    "drop-doorbell",
    "storm",
    "corrupt",
    "trespass",
    "bus-error",
    "gone",
    "bad-id",
    "ones",
];
const KEYS: [&str; 9] = [
    "cmd", "up", "node", "peer", "on", "kind", "context", "cmds", "",
];
const WORDS: [&str; 12] = [
    "stats", "link", "stall", "fault", "true", "", "\\u0000", "\\ud800", "é", "nul", "0", "a/b",
];

const VERBS: [&str; 14] = [
    "info", "peers", "ping", "register", "charge", "lmm", "dma", "send", "recv", "connect",
    "listen", "stat", "usage", "help",
];
const ARGUMENTS: [&str; 16] = [
    "--json",
    "--device",
    "--timeout",
    "--once",
    "--ring",
    "--capacity",
    "--buffer",
    "--wait",
    "0",
    "1",
    "-1",
    "18446744073709551616",
    "4K",
    "",
    "--",
    "\u{fffd}",
];

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts a program, and waits until it reports that its sockets exist.
    fn start(program: &Path, options: &[String], socket: PathBuf) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(options)
            .env("RUST_LOG", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        let server = Self { child, socket };
        match said.trim() {
            "ready" => Ok(server),
            said => Err(io::Error::other(format!("{}: {said:?}", program.display()))),
        }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(stream)
    }

    /// Fails the case unless it still runs.
    fn check(&mut self) {
        let ended = self.child.try_wait();
        assert!(matches!(ended, Ok(None)), "a server has ended: {ended:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The programs that were built with this one.
pub(crate) struct Programs {
    tool: PathBuf,
    device: Server,
    ivshmem: Server,
    place: PathBuf,
}

impl Programs {
    /// Starts the servers.
    ///
    /// # Errors
    ///
    /// Any error that keeps them from running.
    pub(crate) fn start() -> io::Result<Self> {
        let beside = std::env::current_exe()?;
        let place = std::env::temp_dir().join(format!("uldma-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let path = |name: &str| place.join(name);
        let text = |name: &str| path(name).to_string_lossy().into_owned();
        let mut options = vec!["--control".to_string(), text("control")];
        for node in 0..NODES {
            options.extend(["--socket".to_string(), text(&format!("device-{node}"))]);
        }
        let program = beside.with_file_name("uldma-device");
        let device = Server::start(&program, &options, path("control"))?;
        let options = [
            "--socket".to_string(),
            text("ivshmem"),
            "--size=65536".into(),
        ];
        let program = beside.with_file_name("uldma-ivshmem-server");
        let ivshmem = Server::start(&program, &options, path("ivshmem"))?;
        Ok(Self {
            tool: beside.with_file_name("uldma"),
            device,
            ivshmem,
            place,
        })
    }

    /// A request, a client, or a command line.
    pub(crate) fn case(&mut self, chance: &mut Chance, outcomes: &mut Outcomes) {
        match chance.below(40) {
            0 => command_line(chance, &self.tool, outcomes),
            1..=8 => client(chance, &mut self.ivshmem, outcomes),
            _ => requests(chance, &mut self.device, outcomes),
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// A value of JSON, or nearly one.
fn value(chance: &mut Chance, depth: usize) -> String {
    match chance.below(if depth == 0 { 5 } else { 8 }) {
        0 => "true".into(),
        1 => "null".into(),
        2 => chance.below(NODES + 2).to_string(),
        3 => format!("\"{}\"", chance.pick(&WORDS).unwrap_or_default()),
        4 => match chance.below(3) {
            0 => chance.word().to_string(),
            1 => format!("-{}", chance.word()),
            _ => format!("{}e{}", chance.word(), chance.below(500)),
        },
        5 => {
            let values: Vec<_> = (0..chance.below(4))
                .map(|_| value(chance, depth - 1))
                .collect();
            format!("[{}]", values.join(","))
        }
        6 => object(chance, depth - 1),
        _ => "[".repeat(chance.below(300)),
    }
}

fn object(chance: &mut Chance, depth: usize) -> String {
    let command = chance.pick(&COMMANDS).unwrap_or("");
    let mut fields = vec![format!("\"cmd\":\"{command}\"")];
    for _ in 0..chance.below(5) {
        let key = chance.pick(&KEYS).unwrap_or_default();
        fields.push(format!("\"{key}\":{}", value(chance, depth)));
    }
    if chance.one_in(6) {
        fields.remove(0);
    }
    format!("{{{}}}", fields.join(","))
}

/// A request that is carried out, if there is such a node, and such a context.
fn request(chance: &mut Chance) -> String {
    let on = chance.one_in(2);
    let node = chance.below(NODES + 1);
    match chance.below(4) {
        0 => format!("{{\"cmd\":\"link\",\"up\":{on},\"node\":{node}}}"),
        1 => {
            let context = chance.below(20);
            format!("{{\"cmd\":\"hold\",\"on\":{on},\"node\":{node},\"context\":{context}}}")
        }
        2 => r#"{"cmd":"stats"}"#.into(),
        _ => {
            let kind = chance.pick(&FAULTS).unwrap_or_default();
            format!("{{\"cmd\":\"fault\",\"kind\":\"{kind}\",\"on\":{on},\"node\":{node}}}")
        }
    }
}

/// Bytes of a line, most often of a request.
fn line(chance: &mut Chance) -> Vec<u8> {
    let line = match chance.one_in(3) {
        true => request(chance),
        false => object(chance, 2),
    };
    let mut line = line.into_bytes();
    for _ in 0..chance.below(3) {
        let at = chance.below(line.len() + 1);
        let byte = u8::try_from(chance.any() & 0xff).unwrap_or(0);
        match chance.below(5) {
            0 => line.truncate(at),
            1 => line.insert(at, byte),
            _ => {}
        }
    }
    line.retain(|byte| *byte != b'\n');
    line.push(b'\n');
    line
}

/// Lines at the control socket: each is answered, or the connection is closed.
fn requests(chance: &mut Chance, server: &mut Server, outcomes: &mut Outcomes) {
    let mut stream = match server.connect() {
        Ok(stream) => stream,
        Err(error) => panic!("no connection: {error}"),
    };
    let Ok(replies) = stream.try_clone() else {
        return;
    };
    let mut replies = BufReader::new(replies);
    for _ in 0..chance.below(20) {
        let line = line(chance);
        let mut reply = String::new();
        let done = stream
            .write_all(&line)
            .and_then(|()| replies.read_line(&mut reply));
        match done {
            Ok(0) => {
                // Lines are text.
                assert!(std::str::from_utf8(&line).is_err(), "no answer to {line:?}");
                outcomes.add("request: closed");
                break;
            }
            Ok(_) => outcomes.add(outcome(&reply)),
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&line)),
        }
    }
    server.check();
}

fn outcome(reply: &str) -> String {
    let is_object = reply.starts_with("{\"ok\":") && reply.ends_with("}\n");
    assert!(is_object, "not an answer: {reply}");
    if reply.starts_with("{\"ok\":true") {
        return "request: done".into();
    }
    let error = reply
        .split_once("\"error\":\"")
        .map_or("", |(_, error)| error);
    let words: Vec<_> = error.split([' ', '`', '\\', '"', '\n']).take(2).collect();
    format!("request: {}", words.join(" "))
}

/// Connects a client, which must not send anything and does not read to the end; the next client
/// must be served.
fn client(chance: &mut Chance, server: &mut Server, outcomes: &mut Outcomes) {
    let mut bad = Vec::new();
    for _ in 0..chance.below(12) {
        let Ok(mut stream) = server.connect() else {
            outcomes.add("client: not taken");
            continue;
        };
        let bytes: Vec<u8> = (0..chance.below(100)).map(|_| 0x5a).collect();
        let written = stream.write_all(&bytes).is_ok();
        outcomes.add(format!("client: wrote output: {written}"));
        if chance.one_in(2) {
            bad.push(stream);
        }
    }
    drop(bad);
    // The server may not have noticed yet that clients have left.
    let until = Instant::now() + DEADLINE;
    loop {
        let mut version = [0; 8];
        let answer = server
            .connect()
            .and_then(|mut stream| stream.read_exact(&mut version));
        if answer.is_ok() {
            assert_eq!(version, [0; 8]);
            break;
        }
        server.check();
        assert!(
            Instant::now() < until,
            "an honest client is not served: {answer:?}"
        );
    }
    outcomes.add("client: served");
}

fn command_line(chance: &mut Chance, program: &Path, outcomes: &mut Outcomes) {
    let mut arguments = vec![chance.pick(&VERBS).unwrap_or("info").to_string()];
    for _ in 0..chance.below(6) {
        arguments.push(match chance.below(4) {
            0 => chance.word().to_string(),
            _ => chance.pick(&ARGUMENTS).unwrap_or("").to_string(),
        });
    }
    // Without a device, so that nothing can be waited for.
    let child = Command::new(program)
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        panic!("cannot run {}", program.display());
    };
    let until = Instant::now() + DEADLINE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("it does not end: {arguments:?}");
            }
        }
    };
    // A panic ends with 101.
    assert!(
        status.code().is_some_and(|code| code != 101),
        "{status}: {arguments:?}"
    );
    outcomes.add(format!("uldma: {status}"));
}
