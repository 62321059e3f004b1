// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the users whose programs listen at a port of TCP. A peer must not get to a program of a user
//! other than that of `uldma run`.

use std::fs;

use nix::unistd::geteuid;

/// The tables of the kernel.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a socket that listens.
const LISTEN: &str = "0A";

/// Returns true if all sockets that listen at a port are of this user, and there is one.
pub(super) fn by_this_user(port: u16) -> bool {
    let tables = TABLES.map(|path| fs::read_to_string(path).unwrap_or_default());
    let user = geteuid().as_raw();
    let mut users = tables
        .iter()
        .flat_map(|table| listeners(table, port))
        .peekable();
    users.peek().is_some() && users.all(|found| found == user)
}

/// Returns the users of the sockets in a table that listen at a port.
fn listeners(table: &str, port: u16) -> impl Iterator<Item = u32> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        // Number, local and remote address, state, queues, timer, retransmissions, user.
        let mut fields = line.split_whitespace().skip(1);
        let (_, local) = fields.next()?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let user = fields.nth(3)?.parse().ok()?;
        let is_here = u16::from_str_radix(local, 16) == Ok(port) && state == LISTEN;
        is_here.then_some(user)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0
   1: 0100007F:1F90 0100007F:8AE0 01 00000000:00000000 00:00000000 00000000     7        0 2 1 0
   2: 00000000000000000000000000000000:1F90 0:0000 0A 0:0 00:0 0     0        0 3 1 0
";

    #[test]
    fn the_users_of_a_port_are_found() {
        assert_eq!(listeners(TABLE, 8080).collect::<Vec<_>>(), [1000, 0]);
        assert_eq!(listeners(TABLE, 8081).count(), 0);
        assert_eq!(listeners("", 8080).count(), 0);
    }

    #[test]
    fn a_listener_of_this_user_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(by_this_user(port));
    }
}
