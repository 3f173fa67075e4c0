import io.netty.channel.Channel;
import io.netty.handler.codec.http.HttpRequest;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.Supplier;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import org.elasticsearch.ElasticsearchStatusException;
import org.elasticsearch.action.ActionListener;
import org.elasticsearch.common.network.NetworkService;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.ssl.PemKeyConfig;
import org.elasticsearch.common.util.BigArrays;
import org.elasticsearch.common.util.PageCacheRecycler;
import org.elasticsearch.common.util.concurrent.ThreadContext;
import org.elasticsearch.http.HttpPreRequest;
import org.elasticsearch.http.HttpServerTransport;
import org.elasticsearch.http.netty4.Netty4HttpServerTransport;
import org.elasticsearch.http.netty4.internal.HttpValidator;
import org.elasticsearch.indices.breaker.CircuitBreakerService;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.telemetry.TelemetryProvider;
import org.elasticsearch.threadpool.ThreadPool;
import org.elasticsearch.transport.netty4.Netty4Plugin;
import org.elasticsearch.transport.netty4.SharedGroupFactory;
import org.elasticsearch.transport.netty4.TLSConfig;
import org.elasticsearch.xcontent.NamedXContentRegistry;

/**
 * Elasticsearch's HTTP transport with TLS and a check of the Authorization header.
 *
 * <p>Elasticsearch's own security is not published as a jar. This uses the two places where it plugs in: the engine of
 * the transport's TLS, and the validator that sees a request before it is dispatched. TLS is therefore Elasticsearch's
 * own, but the check is ours: it knows a fixed list of header values, no roles, no realms, no key management.
 *
 * <p>System properties: headrace.certificate and headrace.key (PEM files) switch TLS on; headrace.authorizations (a
 * file with one allowed header value a line) switches the check on. Without them this is the plain transport.
 */
public class SecureNetty4Plugin extends Netty4Plugin {
    @Override
    public Map<String, Supplier<HttpServerTransport>> getHttpTransports(
        Settings settings,
        ThreadPool threadPool,
        BigArrays bigArrays,
        PageCacheRecycler recycler,
        CircuitBreakerService breakers,
        NamedXContentRegistry contents,
        NetworkService network,
        HttpServerTransport.Dispatcher dispatcher,
        BiConsumer<HttpPreRequest, ThreadContext> perRequest,
        ClusterSettings clusterSettings,
        TelemetryProvider telemetry) {
        if (System.getProperty("headrace.certificate") == null) {
            return super.getHttpTransports(
                settings, threadPool, bigArrays, recycler, breakers, contents, network, dispatcher, perRequest,
                clusterSettings, telemetry);
        }
        return Map.of(
            NETTY_HTTP_TRANSPORT_NAME,
            () -> new Netty4HttpServerTransport(
                settings, network, threadPool, contents, dispatcher, clusterSettings, new SharedGroupFactory(settings),
                telemetry, tls(), null, validator()) {
                @Override
                protected void populatePerRequestThreadContext(RestRequest request, ThreadContext context) {
                    perRequest.accept(request.getHttpRequest(), context);
                }
            });
    }

    private static TLSConfig tls() {
        Path certificate = Path.of(System.getProperty("headrace.certificate"));
        String key = System.getProperty("headrace.key");
        PemKeyConfig pem = new PemKeyConfig(certificate.toString(), key, new char[0], certificate.getParent());
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(new KeyManager[] {pem.createKeyManager()}, null, null);
            return new TLSConfig((host, port) -> {
                SSLEngine engine = context.createSSLEngine(host, port);
                engine.setUseClientMode(false);
                return engine;
            });
        } catch (GeneralSecurityException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static HttpValidator validator() {
        Set<String> allowed;
        try {
            allowed = Set.copyOf(Files.readAllLines(Path.of(System.getProperty("headrace.authorizations"))));
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
        return (HttpRequest request, Channel channel, ActionListener<Void> listener) -> {
            List<String> sent = request.headers().getAll("Authorization");
            if (sent.size() == 1 && allowed.contains(sent.get(0))) {
                listener.onResponse(null);
            } else {
                listener.onFailure(new ElasticsearchStatusException(
                    sent.isEmpty() ? "missing authentication credentials" : "unable to authenticate",
                    RestStatus.UNAUTHORIZED));
            }
        };
    }
}
